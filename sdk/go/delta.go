package deltarouter

import (
	"fmt"
	"time"
)

// Op is the type of a change.
type Op uint8

// The ops, with the values of the ABI. Deleted: the object does not exist any more. Deselected: it
// exists, but the selector of the source does not match it any more.
const (
	Added Op = iota + 1
	Updated
	Deleted
	Deselected
	Sync    // no change: a resync repeats every object
	Entered // the condition (when) of a route holds
	Left    // a condition that was reported as Entered ended
)

// String returns the op in lower case, as in the router's configuration.
func (op Op) String() string {
	switch op {
	case Added:
		return "added"
	case Updated:
		return "updated"
	case Deleted:
		return "deleted"
	case Deselected:
		return "deselected"
	case Sync:
		return "sync"
	case Entered:
		return "entered"
	case Left:
		return "left"
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// ParseOp is the inverse of [Op.String].
func ParseOp(name string) (Op, bool) {
	for op := Added; op <= Left; op++ {
		if op.String() == name {
			return op, true
		}
	}
	return 0, false
}

// Delta is one change of one object. Its slices are valid until the handler returns and must not be
// modified: the next batch overwrites their buffer. Its strings may be kept.
type Delta struct {
	Op       Op
	Source   string // the name of the source in the router's configuration
	Cluster  string
	Resource string // [group/]version/resource, such as v1/pods
	Kind     string // such as Pod; may be empty

	Namespace       string // empty for a cluster-scoped object
	Name            string
	UID             string
	ResourceVersion string

	// Object is the JSON of the object after the change, or its last state for Deleted and
	// Deselected. It is never empty.
	Object []byte
	// OldObject is the JSON of the object before the change. It is empty for Added and Sync, and if
	// the source does not keep objects.
	OldObject []byte

	// the object existed before the router saw it, and is delivered for the first time
	Initial bool
	// the change was inferred from a list: OldObject is the last known state, and later states may
	// have been missed
	Stale       bool
	Redelivered bool // from the dead letters; the object may have changed since

	// The fields of a route with a condition. Late: Entered was due while the router was not
	// running. Repeat: a reminder of an earlier Entered. Since: the time at which the condition
	// began to hold; zero: unknown.
	Late, Repeat bool
	Since        time.Time

	Suppressed int // the number of deltas that the route's limit held back before this one

	// Event is the event that an upstream route made of the delta; nil: the delta comes from its
	// source.
	Event *RouteEvent

	// With has the values of the route's `with`, a JSON object. It is empty if the route has
	// none.
	With []byte
	// TraceParent identifies the span of the delta in its route, in the form of W3C Trace Context:
	// pass it on as the header traceparent of requests. It is empty unless the router exports
	// traces.
	TraceParent string

	Seen time.Time // the time at which the router received the change

	index uint32 // in the batch
}

// String names the delta in logs and errors: "updated pods default/web-0".
func (d Delta) String() string {
	name := d.Name
	if d.Namespace != "" {
		name = d.Namespace + "/" + d.Name
	}
	return d.Op.String() + " " + d.Source + " " + name
}

// RouteEvent is an event of an upstream route.
type RouteEvent struct {
	ID, Type, Source, Subject string // as in the CloudEvent that a sink would get
	Route                     string // the upstream route
	Time                      time.Time
	Data                      []byte // JSON; valid as long as the slices of the delta
}

// Event is one event to deliver.
type Event struct {
	// Type is the CloudEvents type; empty: io.deltarouter.<op>.
	Type string
	// Subject is the CloudEvents subject; empty: namespace/name of the delta's object.
	Subject string
	// Data is the data of the event: any value that encoding/json can encode. A []byte or
	// json.RawMessage must be JSON, and is used unchanged. Strings, integers, and lists and maps of
	// them are encoded without reflection.
	Data any
}
