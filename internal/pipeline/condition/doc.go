// Package condition contains the rules about time of one route: its conditions (when), its delete
// holds (ops: deleted with for) and its limit. It connects the state machines of package rules with
// the configuration of the route and the records of the checkpoint.
//
// [Rules] owns all three. It has no lock of its own: every method is called under the lock of the
// route. It uses neither the queue nor the filters. The caller evaluates the filters and keys
// without the lock, passes the result, and enqueues the returned edges and deltas in the same
// critical section, so that state and queue change together.
//
// Timers call the [Owner] of the rules, without any lock.
package condition
