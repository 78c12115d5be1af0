package deltarouter

import (
	"fmt"
	"time"
)

// Op is what happened to an object.
type Op uint8

// The ops, with the values of the ABI. Deleted means gone; an object that merely left a source's
// selector is Deselected.
const (
	Added Op = iota + 1
	Updated
	Deleted
	Deselected
	Sync    // nothing happened: a resync puts every object through again
	Entered // of a route with a condition (when): it holds
	Left    // of a route with a condition: it was told as Entered, and holds no longer
)

// String returns the op as the router's configuration spells it: lower case.
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
// modified: they lie in a buffer that the next batch overwrites. Its strings may be kept.
type Delta struct {
	Op       Op
	Source   string // the name that the router's configuration gives the source
	Cluster  string
	Resource string // [group/]version/resource, such as v1/pods
	Kind     string // such as Pod; may be empty

	Namespace       string // empty for a cluster-scoped object
	Name            string
	UID             string
	ResourceVersion string

	// Object is the JSON of the object after the change; for Deleted and Deselected of its last
	// state. It is never empty.
	Object []byte
	// OldObject is the JSON of the object before the change; empty for Added and Sync, and where
	// the source keeps no objects.
	OldObject []byte

	// the object was there before the router was, and is put through for the first time
	Initial bool
	// the change was inferred from a list: OldObject is the last state known rather than the last
	// there was
	Stale       bool
	Redelivered bool // put through again from the dead letters; the object may have moved on since

	// Of a route with a condition: Late says that Entered was due while the router was down, Repeat
	// that it was told before, and Since when the condition began to hold; zero: the router does
	// not say.
	Late, Repeat bool
	Since        time.Time

	Suppressed int // how many deltas the limit of the route held back before this one

	// Event is what another route made of the delta before it gave it to this one; nil: the delta
	// comes from its source.
	Event *RouteEvent

	Seen time.Time // when the router received the change

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

// RouteEvent is an event that another route made.
type RouteEvent struct {
	ID, Type, Source, Subject string // as in the CloudEvent that a sink would get
	Route                     string // that made it
	Time                      time.Time
	Data                      []byte // JSON; valid as long as the slices of the delta
}

// Event is one event to deliver.
type Event struct {
	// Type is the CloudEvents type; empty: io.deltarouter.<op>.
	Type string
	// Subject is the CloudEvents subject; empty: namespace/name of the delta's object.
	Subject string
	// Data is the event's data: any value that encoding/json can encode. A []byte or
	// json.RawMessage is taken as JSON as it is. Strings, whole numbers, and lists and maps of
	// them, are encoded without reflection.
	Data any
}
