package event

import (
	"fmt"
	"time"
)

// Op is what happened to an object.
type Op uint8

// The ops. Deleted means gone; an object that merely left a source's selector is Deselected.
const (
	Added Op = iota + 1
	Updated
	Deleted
	Deselected
	Sync    // nothing happened: a resync puts every object through again
	Entered // of a route with a condition (when): it holds, and did not before, or has held for as long as the route says
	Left    // it was told as Entered, and holds no longer
)

var opNames = [...]string{"", "added", "updated", "deleted", "deselected", "sync", "entered", "left"}

// Ops lists all ops, in the order of their values.
func Ops() []Op { return []Op{Added, Updated, Deleted, Deselected, Sync, Entered, Left} }

// SourceOps lists the ops that the deltas of a source have, in the order of their values: those that no route makes.
func SourceOps() []Op { return []Op{Added, Updated, Deleted, Deselected, Sync} }

// String returns the op as configuration, CEL, metrics and events spell it: lower case.
func (op Op) String() string {
	if op == 0 || int(op) >= len(opNames) {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return opNames[op]
}

// ParseOp is the inverse of [Op.String].
func ParseOp(s string) (Op, bool) {
	for _, op := range Ops() {
		if opNames[op] == s {
			return op, true
		}
	}
	return 0, false
}

// Delta is one change of one object, as a source saw it. It is shared by all routes and must not be modified.
//
// What can be relied on: the deltas of one object reach a route in the order in which they happened; there is no order across
// objects. While the watch can be resumed every change becomes a delta; across a gap (410 Gone) the net change does.
type Delta struct {
	Source string // the name that the configuration gives the source
	Op     Op
	// Old is the state before and New the state after. Old is nil for Added, and for Updated where the source keeps identities
	// only. New is nil for Deleted and Deselected, whose last state is Old. Sync has only New. Entered and Left have what the change has that
	// made them; where time did, only New.
	Old, New *Object
	// Initial: an object that was there before, put through for the first time (existing: deliver).
	Initial bool
	// Epoch says, of an Initial delta, how often the configuration had been reloaded when its watch was added; -1: it was there before
	// the router started. A route that is older than the watch does not take it: it is not new to the route that the object exists.
	Epoch int
	// Stale: the change was inferred from a list, and Old is the last state known rather than the last there was.
	Stale bool
	// Listed: the change was found in a list rather than told by a watch. A list has few of them for each object.
	Listed bool
	// Selective: an object that is Added may have been there before. It left the source's selector, which this route may not have
	// seen, or it was delivered before a crash. So if it is deleted at once, that has to be told.
	Selective bool
	// Of Entered and Left, which belong to one route: Since is when the condition began to hold, and Began tells the times apart at which
	// it did, in event ids: it is the resourceVersion from which on it held, and more where that does not say it.
	Since time.Time
	Began string
	// Repeat says that Entered was told before: how often. Late: it was due while the router was down.
	Repeat int
	Late   bool
	// Suppressed is how many deltas the limit of the route held back, since the last one that it let through, for the sake of which it
	// comes now. It belongs to one route: a delta that has it is a copy of the one that others share.
	Suppressed int
	// Event is what another route made of the delta before it gave it to this one, without its Of and Key. It belongs to one route, like
	// Suppressed. nil: the delta came from its source. Of a Secret the disk keeps neither Data nor what a handler named: after a restart
	// Data is null.
	Event *Event
	// Redelivered: put through again from the dead letters; the object may have moved on since.
	Redelivered bool
	// Seen is when the router received the change; of what time made, when it was due.
	Seen time.Time
	// Durable is closed once the identity of the object is on disk: nothing about an object is delivered before, because its delete
	// could not be noticed if the router crashed. nil: there is nothing to wait for.
	Durable <-chan struct{}
}

// Object returns the state that the delta is about: New, or for Deleted and Deselected the last state. It is never nil.
func (d *Delta) Object() *Object {
	if d.New != nil {
		return d.New
	}
	return d.Old
}

// Key returns the namespace and name of the delta's object.
func (d *Delta) Key() Key { return d.Object().Key() }

// String names the delta in logs and errors: "updated pods default/web-0".
func (d *Delta) String() string { return d.Op.String() + " " + d.Source + " " + d.Key().String() }
