// Package plugins defines the interfaces between the pipeline and the components that handle and
// deliver events:
//
//   - A [Handler] turns deltas into events.
//   - A [Sink] delivers events.
//   - A [Kind] opens a handler or a sink from its section of the configuration.
//
// Each kind is a package below this one. It imports this package and the packages that need no
// other part of the router. Package plugins/all lists the kinds of the router. The package
// plugins/plugintest tests the contract that all kinds keep.
package plugins

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Handler decides about deltas and makes events of them.
type Handler interface {
	// Handle decides about the deltas of a batch.
	//
	//   - Results: it returns one Result per delta, in the order of the batch.
	//   - Error: it concerns the whole batch. No delta was handled, and the router may pass the
	//     deltas again. It names the handler, and so does the error of a Result.
	//   - The batch: Handle must neither modify it nor keep it. It may contain several deltas of
	//     one object, in the order in which they happened.
	//   - Concurrency: at most HandlerEnv.Workers calls run at the same time. The deltas of one
	//     object are never in two of them.
	//   - Context: Handle returns soon after ctx is done.
	Handle(ctx context.Context, batch []*event.Delta) ([]Result, error)
	// Close ends the handler. The router calls it once, after the last Handle has returned. If a
	// Handle ignores ctx, the router does not wait for it: the resources of that call are freed
	// when it returns.
	Close(ctx context.Context) error
}

// Timed is a [Handler] that limits the duration of its calls.
type Timed interface {
	// Timeout returns the time limit for one delta. When a route ends during a call, the ctx of the
	// call is done after that time.
	Timeout() time.Duration
}

// Pinned is a [Handler] that runs the content of a file.
type Pinned interface {
	// Digest returns the SHA-256 of the running content, in hexadecimal digits.
	Digest() string
}

// Sink delivers events.
type Sink interface {
	// Write delivers events in order.
	//
	//   - All events were delivered: it returns nil.
	//   - Any was not: it returns one error per event, nil for the delivered ones. The [Class] of
	//     each error decides the next step.
	//   - The connection was lost: it returns the same error for all remaining events, and does not
	//     retry. The router schedules the retry.
	//   - The slice: Write must not modify it, nor keep it after its return. The router reuses it.
	//   - Concurrency: several calls may run at the same time.
	//   - Context: Write returns soon after ctx is done.
	Write(ctx context.Context, events []event.Event) []error
	// Close ends the sink. The router calls it once, after the last Write has returned.
	Close(ctx context.Context) error
}

// Resumer is a [Sink] that counts the actions of each route, and pauses a route that exceeds a
// limit (see [Pause]).
type Resumer interface {
	// Resume resets the counts of a route. The router calls it when an operator resumes the route.
	Resume(route string)
}

// Verdict is the decision of a handler about one delta.
type Verdict uint8

// The verdicts, with the values that guests use.
const (
	OK    Verdict = iota // done: the events of the Result are delivered
	Retry                // try again later; counts as an attempt unless Err is [Postponed]
	Drop                 // done: nothing is delivered
	Fail                 // rejected: retried as often as the route says, then onFailure applies
)

// Done reports whether a delta needs no further attempt. Only then the values that the handler
// wrote for it are kept.
func (v Verdict) Done() bool { return v == OK || v == Drop }

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case Retry:
		return "retry"
	case Drop:
		return "drop"
	case Fail:
		return "fail"
	}
	return "unknown"
}

// Result is the answer of a handler for one delta.
type Result struct {
	Verdict Verdict
	// Err is the reason of Retry and Fail. Its [Class] decides the next step. It does not name the
	// delta: logs, dead letters and commands show it beside the error.
	Err error
	// Events are the events to deliver. Only OK has any.
	Events []Emit
}

// Emit is one event of a [Result].
type Emit struct {
	Data    []byte // JSON, the event's data
	Type    string // empty: io.deltarouter.<op>
	Subject string // empty: namespace/name of the delta's object
}
