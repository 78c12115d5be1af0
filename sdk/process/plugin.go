package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Plugin is a program that handles changes. Only Setup is required.
type Plugin struct {
	Name    string // is logged when the router starts it
	Version string // is logged, too
	// Schema is a JSON Schema of the configuration, with the keywords of draft 4, without $ref.
	// What it does not allow the router refuses before Setup, and tells file, line and column. A
	// schema that it cannot use it leaves alone, and logs that. Empty: anything is allowed.
	Schema string
	// Setup makes the handler. It is called once, when the configuration is there; its error ends
	// the start of the router with its message.
	Setup func(ctx context.Context, r *Router) (Handler, error)
	// Close is called, if Setup made a handler, before the process ends by order of the router; it
	// has as long as the handler's limits.stopTimeout says. nil: nothing is to be done.
	Close func()
}

// Handler decides about one delta. No events and no error means that there is nothing to deliver.
// With an error, the events do not count: see [Retry] and [ErrDrop]; any other error fails the
// delta, and the route's retry and onFailure decide what comes of it.
//
// It is called from several goroutines at once, never for one object at the same time. ctx ends
// when the router does not wait any more.
type Handler func(ctx context.Context, d Delta) ([]Event, error)

// Handle is the Setup of a plugin without a configuration.
func Handle(h Handler) func(context.Context, *Router) (Handler, error) {
	return func(_ context.Context, r *Router) (Handler, error) {
		var none struct{}
		return h, r.Config(&none)
	}
}

// ErrDrop ends the delta without events and counts it as dropped.
var ErrDrop = errors.New("dropped by the handler")

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// Retry says that err goes away by itself: the delta is tried again, not before the given time (0:
// as the route's retry says).
func Retry(err error, after time.Duration) error { return &retryError{err, after} }

// Op is what happened to an object.
type Op uint8

// The ops. Deleted means gone; an object that merely left a source's selector is Deselected.
const (
	Added Op = iota + 1
	Updated
	Deleted
	Deselected
	Sync    // nothing happened: a resync puts every object through again
	Entered // the condition of a route (when) holds
	Left    // it holds no longer
)

// String returns the op as the router's configuration spells it: lower case.
func (op Op) String() string {
	names := [...]string{"", "added", "updated", "deleted", "deselected", "sync", "entered", "left"}
	if op == 0 || int(op) >= len(names) {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return names[op]
}

// Delta is one change of one object. Its slices must not be modified.
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

	// Object is the JSON of the object after the change; for Deleted and Deselected, and Left
	// because of these, of its last state. It is never empty.
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

	// Of a route with a condition (when): Late says that Entered was due while the router was down,
	// Repeat that it was told before, and Since when the condition began to hold. Where `for` waits
	// after Deleted, Since is when the object was gone. Zero: there is nothing to say.
	Late, Repeat bool
	Since        time.Time

	Suppressed int // how many deltas of its key the limit of the route held back before this one

	// Event is what another route made of the delta before it gave it to this one; nil: the delta
	// comes from its source.
	Event *RouteEvent

	Seen time.Time // when the router received the change; of what time made, when it was due
}

// RouteEvent is an event that another route made.
type RouteEvent struct {
	ID, Type, Source, Subject string // as in the CloudEvent that a sink would get
	Route                     string // that made it
	Time                      time.Time
	Data                      []byte // JSON; must not be modified
}

// String names the delta in logs and errors: "updated pods default/web-0".
func (d Delta) String() string {
	name := d.Name
	if d.Namespace != "" {
		name = d.Namespace + "/" + d.Name
	}
	return d.Op.String() + " " + d.Source + " " + name
}

// Event is one event to deliver.
type Event struct {
	// Type is the CloudEvents type; empty: io.deltarouter.<op>.
	Type string
	// Subject is the CloudEvents subject; empty: namespace/name of the delta's object.
	Subject string
	// Data is the event's data: any value that encoding/json can encode. A []byte or
	// json.RawMessage is taken as JSON as it is.
	Data any
}

// json returns the event's data.
func (e *Event) json() ([]byte, error) {
	switch data := e.Data.(type) {
	case []byte:
		return data, nil
	case json.RawMessage:
		return data, nil
	}
	return json.Marshal(e.Data)
}

// Config decodes the handler's configuration into v, as encoding/json does, but a key that v has no
// field for is an error. Without a configuration v stays as it is, so defaults are what v held
// before.
func (r *Router) Config(v any) error {
	if r.config == "" || r.config == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(r.config)))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
