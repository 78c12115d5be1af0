// Package apply makes deltas of the answers of the API server and applies them.
//
// An [Applier] compares an object, or a whole list, with the persist.State. Each difference becomes
// one delta per [Source] of the watch. The delta is admitted downstream; then the store, the
// applied resourceVersion and the queues downstream change in one step. A watch has one delta in
// work at a time.
package apply
