package event

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/transit"
)

// Op is what happened to an object.
type Op uint8

// The ops. Deleted means gone; an object that merely left a source's selector is Deselected.
const (
	Added Op = iota + 1
	Updated
	Deleted
	Deselected
	Sync // nothing happened: a resync puts every object through again
	// of a route with a condition (when): it holds, and did not before, or has held for as long as
	// the route says
	Entered
	Left // it was told as Entered, and holds no longer
)

var opNames = [...]string{"", "added", "updated", "deleted", "deselected", "sync", "entered", "left"}

// Ops lists all ops, in the order of their values.
func Ops() []Op { return []Op{Added, Updated, Deleted, Deselected, Sync, Entered, Left} }

// SourceOps lists the ops that the deltas of a source have, in the order of their values: those
// that no route makes.
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

// Delta is one change of one object, as a source saw it. It is shared by all routes and must not be
// modified.
//
// What can be relied on: the deltas of one object reach a route in the order in which they
// happened; there is no order across objects. While the watch can be resumed every change becomes a
// delta; across a gap (410 Gone) the net change does.
type Delta struct {
	Source string // the name that the configuration gives the source
	// Old is the state before and New the state after. Old is nil for Added, and for Updated where
	// the source keeps identities only. New is nil for Deleted and Deselected, whose last state is
	// Old. Sync has only New. Entered and Left have the states of the change that made them; those
	// that time made have only New.
	Old, New *Object
	Op       Op
	// Initial: an object that was there before, put through for the first time (existing: deliver).
	Initial bool
	// Stale: the change was inferred from a list, and Old is the last known state rather than the
	// last state.
	Stale bool
	// Late: Entered or Left was due while the router was down.
	Late bool
	// Redelivered: put through again from the dead letters; the object may have changed since.
	Redelivered bool
	// Since is when the condition of Entered and Left began to hold, which belong to one route.
	// Began identifies that time in event IDs: it is the resourceVersion from which on the
	// condition held, and more where the resourceVersion is ambiguous.
	Since time.Time
	Began string
	// Repeat is how often Entered was delivered before.
	Repeat int
	// Suppressed is the number of deltas that the route's limit held back since the last that it
	// let through. It belongs to one route: a delta that has it is a copy of the shared one.
	Suppressed int
	// Event is the event that an upstream route made of the delta, without its Of and Key. It
	// belongs to one route, like Suppressed. nil: the delta came from its source. Of a Secret the
	// disk keeps neither Data nor attributes that a handler chose: after a restart Data is null.
	Event *Event
	// Seen is when the router received the change; of Entered and Left that time made, when it was
	// due.
	Seen time.Time

	transit transit.State
}

// Transit returns the part of the delta that the router keeps for itself. Plugins have no use for
// it.
func (d *Delta) Transit() *transit.State { return &d.transit }

// Object returns the state that the delta is about: New, or for Deleted and Deselected the last
// state. It is never nil.
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

// Admission is a delta that was evaluated and is about to be handed to those that want it.
type Admission interface {
	// Commit hands the delta on. It is called once, under the lock of its source, and does not
	// block. The delta's transit.State.Durable is set only then.
	Commit()
}

// CommitFunc is a function as an Admission.
type CommitFunc func()

// Commit implements Admission.
func (f CommitFunc) Commit() { f() }
