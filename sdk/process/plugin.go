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
	Name    string // logged when the router starts the plugin
	Version string // logged with the name
	// Schema is a JSON Schema of the configuration, with the keywords of draft 4, without $ref. The
	// router checks the configuration with it before Setup, and reports file, line and column. It
	// ignores a schema that it cannot use, and logs that. Empty: no check.
	Schema string
	// Setup returns the handler. It is called once, when the configuration is available. Its error
	// ends the start of the router with its message.
	Setup func(ctx context.Context, r *Router) (Handler, error)
	// Close is called before the process ends by order of the router, if Setup has succeeded. The
	// limits.stopTimeout of the handler limits its duration. nil: there is nothing to do.
	Close func()
}

// Handler decides about one delta:
//
//   - No events and no error: the delta is done, and nothing is delivered.
//   - Events and no error: the events are delivered.
//   - [ErrDrop]: the delta is counted as dropped.
//   - An error of [Retry]: the delta is tried again, until the maxAge of the route. It is no attempt.
//   - Any other error: the delta fails, which is an attempt. The retry and onFailure of the route
//     decide the next step.
//
// With an error the events are ignored. The router calls a handler from several goroutines at once,
// but never twice for one object at the same time. ctx is done when the router stops waiting.
type Handler func(ctx context.Context, d Delta) ([]Event, error)

// Handle returns the Setup of a plugin without a configuration.
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

// Retry marks err as temporary. The delta is tried again after the given time (0: the delay of the
// route's retry).
func Retry(err error, after time.Duration) error { return &retryError{err, after} }

// Op is the type of a change.
type Op uint8

// The ops. Deleted: the object does not exist any more. Deselected: it exists, but the selector of
// the source does not match it any more.
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
	names := [...]string{"", "added", "updated", "deleted", "deselected", "sync", "entered", "left"}
	if op == 0 || int(op) >= len(names) {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return names[op]
}

// Delta is one change of one object. Its slices must not be modified.
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
	// Deselected, and for a Left that these caused. It is never empty.
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

	// The fields of a route with a condition (when). Late: Entered was due while the router was not
	// running. Repeat: a reminder of an earlier Entered. Since: the time at which the condition
	// began to hold, or at which the object was deleted for a delete hold (`for` after Deleted).
	// Zero: none of these applies.
	Late, Repeat bool
	Since        time.Time

	// the number of deltas of its key that the route's limit held back before this one
	Suppressed int

	// Event is the event that an upstream route made of the delta; nil: the delta comes from its
	// source.
	Event *RouteEvent

	// With has the values of the route's `with` as a JSON object. It is empty if the route has
	// none.
	With []byte
	// TraceParent identifies the span of the delta in its route, in the form of W3C Trace Context:
	// pass it on as the header traceparent of requests. It is empty unless the router exports
	// traces.
	TraceParent string

	// the time at which the router received the change, or at which a report caused by time was due
	Seen time.Time
}

// RouteEvent is an event of an upstream route.
type RouteEvent struct {
	ID, Type, Source, Subject string // as in the CloudEvent that a sink would get
	Route                     string // the upstream route
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
	// Data is the data of the event: any value that encoding/json can encode. A []byte or
	// json.RawMessage must be JSON, and is used unchanged.
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

// Config decodes the handler's configuration into v like encoding/json. A key without a field in v
// is an error. Without a configuration v is unchanged, so v may contain defaults.
func (r *Router) Config(v any) error {
	if r.config == "" || r.config == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(r.config)))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
