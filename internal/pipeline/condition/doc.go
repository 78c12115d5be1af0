// Package condition has the rules about time of one route: its conditions (when), its delete holds
// (ops: deleted with for) and its limit. It is the glue between the state machines of package
// rules, the configuration of the route, and the records of the checkpoint.
//
// [Rules] owns all three. It has no lock of its own: the lock of the route guards it, and every
// method is called under that lock. It knows neither the queue nor the filters. The caller
// evaluates the filters and keys without the lock, passes the result, and enqueues the edges and
// deltas that a method returns, in the same critical section: state and queue change in one step.
//
// The timers call the [Owner] of the rules, without any lock.
package condition
