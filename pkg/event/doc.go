// Package event holds the values that flow through the router: an [Object] of the cluster, a
// [Delta] (what happened to it) and an [Event] (what a sink is told). It is the leaf of the import
// graph: every stage knows these types and none of them knows a stage.
package event
