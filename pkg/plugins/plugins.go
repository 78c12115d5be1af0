// Package plugins is the seam between the pipeline and what handles and delivers events: a
// [Handler] turns deltas into events, a [Sink] delivers them, a [Kind] makes one of a kind from its
// piece of the configuration.
//
// Each kind lives in a folder of its own below this package and imports only this package and the
// leaves; cmd/router/components.go is the list of the kinds that the router has. The contract that
// every kind keeps is tested by plugins/plugintest.
package plugins

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Handler decides about deltas and makes events of them.
type Handler interface {
	// Handle takes a batch, which it must not modify or keep, and returns one Result per delta, in
	// order. A batch may have several deltas of one object, in the order in which they happened. An
	// error is about the batch as a whole: no delta of it was handled, and it may be given again.
	// Handle may be called from several goroutines at once, at most HandlerEnv.Workers of them;
	// deltas of one object never at the same time. It returns soon after ctx is done.
	Handle(ctx context.Context, batch []*event.Delta) ([]Result, error)
	// Close ends the handler. It is called once, after the last Handle has returned, or was given
	// up because it did not heed ctx: what such a call uses is freed when it returns.
	Close(ctx context.Context) error
}

// Timed is a [Handler] that bounds the time of its calls.
type Timed interface {
	// Timeout is the time for one delta. The ctx of a call that is under way when its route ends is
	// done after that time.
	Timeout() time.Duration
}

// Pinned is a [Handler] that runs the content of a file.
type Pinned interface {
	// Digest returns the SHA-256 of the content that runs, in hexadecimal digits.
	Digest() string
}

// Sink delivers events.
type Sink interface {
	// Write delivers events in order. It returns nil if it delivered all of them, else one error
	// per event, nil for each that was delivered; the [Class] of an error says what happens next.
	// The slice must not be modified, nor kept when Write returns: it is used again. A sink that
	// loses its connection gives up on the rest of the events, with the same error for each: the
	// host knows best when to try again. Write may be called from several goroutines at once. It
	// returns soon after ctx is done.
	Write(ctx context.Context, events []event.Event) []error
	// Close ends the sink. It is called once, after the last Write has returned.
	Close(ctx context.Context) error
}

// Resumer is a Sink that counts what routes do, and pauses a route by that (see [Pause]).
type Resumer interface {
	// Resume forgets what was counted of a route: somebody has looked at it, and it goes on.
	Resume(route string)
}

// Verdict is what a handler decides about one delta.
type Verdict uint8

// The verdicts, with the values that guests use.
const (
	OK    Verdict = iota // done; the Result's events are delivered
	Retry                // not now: try again later, counted as an attempt
	Drop                 // done, and nothing is to be delivered
	Fail                 // rejected: retry as often as the route says, then its onFailure decides
)

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

// Result is a handler's answer for one delta.
type Result struct {
	Verdict Verdict
	// Err is why, for Retry and Fail. Its [Class] says what happens next.
	Err error
	// Events is what to deliver, for OK.
	Events []Emit
}

// Emit is one event that a handler asks for.
type Emit struct {
	Data    []byte // JSON, the event's data
	Type    string // empty: io.deltarouter.<op>
	Subject string // empty: namespace/name of the delta's object
}
