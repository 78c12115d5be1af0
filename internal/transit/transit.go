// Package transit has the part of a delta that only the router needs.
package transit

// State is what the informer and the pipeline know about a delta, beside what it says of its
// object. The zero State is that of a change that a watch reported.
type State struct {
	// Durable is closed when the object (of a Secret its identity) is on disk; nil: there is
	// nothing to wait for. Nothing about an object is delivered before, because its delete could
	// not be noticed after a crash of the router.
	Durable <-chan struct{}
	// Epoch belongs to an Initial delta: how often the configuration had been reloaded when the
	// watch was added; -1: the watch was there before the router started. A route that is older
	// than the watch does not take the delta: that the object exists is not new to it.
	Epoch int
	// Listed: the change was found in a list rather than reported by a watch. A list has few
	// changes of each object.
	Listed bool
	// Selective: the object of an Added delta may have been there before: it left the source's
	// selector, which this route may not have seen, or it was delivered before a crash. So if it is
	// deleted at once, the delete has to be delivered.
	Selective bool
	// Enters is set by Admit, before the delta is committed: a route gets the delta which would not
	// be told of the object's delete by the state before. So the new state has to be on disk first,
	// as that of a new object.
	Enters bool
}
