package event

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/transit"
)

// Op is the type of a change.
type Op uint8

// The ops. Deleted: the object does not exist any more. Deselected: it exists, but the selector of
// the source does not match it any more.
const (
	Added Op = iota + 1
	Updated
	Deleted
	Deselected
	// Sync repeats an object that has not changed, in a resync.
	Sync
	// Entered is an op of routes with a condition (when): it holds, and did not before, or has held
	// for as long as the route says.
	Entered
	// Left is the end of a condition that was reported as Entered.
	Left
)

var opNames = [...]string{"", "added", "updated", "deleted", "deselected", "sync", "entered", "left"}

// Ops lists all ops, in the order of their values.
func Ops() []Op { return []Op{Added, Updated, Deleted, Deselected, Sync, Entered, Left} }

// SourceOps lists the ops of deltas that sources make, in the order of their values.
func SourceOps() []Op { return []Op{Added, Updated, Deleted, Deselected, Sync} }

// String returns the op in lower case, as in configuration, CEL, metrics and events.
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

// Delta is one change of one object, as a source saw it. All routes share it, and it must not be
// modified.
//
// The deltas of one object reach a route in the order in which they happened. There is no order
// across objects. While the watch can be resumed, each change becomes one delta. Across a gap (410
// Gone) the net change becomes one delta.
type Delta struct {
	Source string // the name of the source in the configuration
	// Old is the state before the change, New the state after it.
	//
	//   - Added: only New.
	//   - Updated: both; only New if the source keeps identities only.
	//   - Deleted, Deselected: only Old, the last state.
	//   - Sync: only New.
	//   - Entered, Left: the states of the change that caused them; only New if time caused them.
	Old, New *Object
	Op       Op
	// Initial: the object existed before and is delivered for the first time (existing: deliver).
	Initial bool
	// Stale: the change was inferred from a list. Old is the last known state, and later states may
	// have been missed.
	Stale bool
	// Late: Entered or Left was due while the router was not running.
	Late bool
	// Redelivered: the delta comes from the dead letters. The object may have changed since.
	Redelivered bool
	// Since is the time at which the condition of Entered and Left began to hold. Began identifies
	// that time in event IDs. It is the first resourceVersion for which the condition held, with an
	// addition if the resourceVersion is ambiguous.
	Since time.Time
	Began string
	// Repeat is the number of earlier deliveries of Entered.
	Repeat int
	// Suppressed is the number of deltas that the route's limit has held back since the last
	// delivered delta. It belongs to one route: a delta with it is a copy of the shared delta.
	Suppressed int
	// Event is the event that an upstream route made of the delta, without its Of and Key. It
	// belongs to one route, like Suppressed. nil: the delta comes from its source. If the object is
	// a Secret, the disk keeps neither Data nor the attributes that a handler set, so Data is null
	// after a restart.
	Event *Event
	// With has the values of the route's `with` as a JSON object. It belongs to one route, like
	// Suppressed, and is not part of the state on disk. Empty: the route has none.
	With []byte
	// TraceParent identifies the span of the delta in its route, in the form of W3C Trace Context,
	// for a handler that continues the trace. It belongs to one route, like Suppressed. Empty:
	// tracing is off.
	TraceParent string
	// Seen is the time at which the router received the change. For an Entered or Left that time
	// caused, it is the time at which it was due.
	Seen time.Time

	transit transit.State
}

// Transit returns the state of the delta between informer and pipeline. It is for the router
// itself, whose type it has.
func (d *Delta) Transit() any { return &d.transit }

// Object returns the object of the delta: New, or the last state for Deleted and Deselected. It is
// never nil.
func (d *Delta) Object() *Object {
	if d.New != nil {
		return d.New
	}
	return d.Old
}

// Key returns the namespace and name of the object of the delta.
func (d *Delta) Key() Key { return d.Object().Key() }

// String names the delta in logs and errors: "updated pods default/web-0".
func (d *Delta) String() string { return d.Op.String() + " " + d.Source + " " + d.Key().String() }

// Admission is a delta that all filters have evaluated, and that is ready to be enqueued.
type Admission interface {
	// Commit enqueues the delta at the routes that want it. It is called once, under the lock of
	// its source, and does not block. transit.State.Durable of the delta is set only then.
	Commit()
}

// CommitFunc is a function that implements [Admission].
type CommitFunc func()

// Commit implements [Admission].
func (f CommitFunc) Commit() { f() }
