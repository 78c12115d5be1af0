// Package transit contains the part of a delta that only the router uses. It is not in package
// event, whose types other programs use, too.
package transit

// State is the state of a delta between informer and pipeline, beside its object. The zero State
// belongs to a change that a watch reported.
type State struct {
	// Durable is closed when the object (of a Secret its identity) is on disk; nil: there is no
	// need to wait. The object is not delivered before to a route that delivers the ends of
	// objects, because its end could be missed after a crash of the router.
	Durable <-chan struct{}
	// Epoch belongs to an Initial delta: the number of reloads before the watch was added; -1: the
	// watch existed when the router started. A route that is older than the watch does not take the
	// delta, because the object is not new to it.
	Epoch int
	// Listed: the change was found in a list, not reported by a watch. A list has at most a few
	// changes of each object.
	Listed bool
	// Selective: the object of an Added delta may have existed before: it left the source's
	// selector, which this route may not have seen, or it was delivered before a crash or by
	// another leader of a fleet. If it is deleted, the delete must be delivered.
	Selective bool
	// Enters is set by Admit, before the delta is committed: a route gets the delta, although it
	// would not get a delete of the previous state. So the new state must be on disk first, like
	// that of a new object.
	Enters bool
	// Endless is set by Admit, before the delta is committed: no route that gets the delta delivers
	// the end of an object. So the object need not be on disk first.
	Endless bool
	// Only names the sink of a redelivered delta of a route with workers: the others do not get it.
	Only string
}

// Of returns the State of an event.Delta. The compiler inlines it: it costs a comparison of types.
func Of(d carrier) *State {
	return d.Transit().(*State)
}

// carrier is an event.Delta.
type carrier interface{ Transit() any }
