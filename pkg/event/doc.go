// Package event holds the values that flow through the router: an [Object] of the cluster, a
// [Delta] (a change of an object) and an [Event] (the message that a sink delivers). It is the leaf
// of the import graph: all packages of the router know these types.
package event
