// Package apply makes deltas of what the API server says and applies them.
//
// An [Applier] compares each object, or all of a list, with what the persist.State has. What
// differs becomes a delta for each [Source] of the watch, which is admitted downstream, and then
// the store, the applied resourceVersion and what downstream commits change in one step. One delta
// of a watch is worked on at a time.
package apply
