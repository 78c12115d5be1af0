package plugins

import (
	"context"
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// Class decides the next step after an error about an event or a delta. A sink returns one error
// per event. A handler returns one error per delta, or one for its batch.
//
//		class      made by                  after an error of a sink, the event    after an error of a handler, the delta
//		Failed     RetryLater, or unmarked  is retried until maxAge                is retried, at most retry.attempts times
//		Postponed  Postpone                 is retried until maxAge                is retried until maxAge
//		Rejected   Reject                   is not retried                         is not retried
//		Paused     Pause                    stays pending, and its route pauses    is retried, at most retry.attempts times
//
//	  - No retry is left, or none is allowed: the onFailure of the route applies.
//	  - All events of a Write are Failed: the sink counts as unavailable, and its circuit breaker may
//	    open. Any other class shows that the sink works.
//	  - A batch failed: each of its deltas is retried alone. That call of Handle is not an attempt.
type Class uint8

// The classes. The outermost mark in the chain of an error decides its class.
const (
	Failed Class = iota // the default
	Postponed
	Rejected
	Paused
)

// markedError is an error with a class.
type markedError struct {
	err   error
	class Class
	after time.Duration
}

func (e *markedError) Error() string { return e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }

// ClassOf returns the class of an error. It is [Failed] for nil and for an error without a mark.
func ClassOf(err error) Class {
	if m, ok := errors.AsType[*markedError](err); ok {
		return m.class
	}
	return Failed
}

// RetryAfter returns the minimum delay before the next attempt, from the outermost mark of an
// error. 0: there is none.
func RetryAfter(err error) time.Duration {
	if m, ok := errors.AsType[*markedError](err); ok {
		return m.after
	}
	return 0
}

// Reject marks err as permanent: a 4xx response, a malformed event, a deterministic trap of a
// guest.
func Reject(err error) error { return &markedError{err, Rejected, 0} }

// RetryLater marks err as [Failed], with the minimum delay before the next attempt (a Retry-After
// header; 0: unknown).
func RetryLater(err error, after time.Duration) error { return &markedError{err, Failed, after} }

// Postpone marks err as temporary, with the minimum delay before the next attempt (0: unknown).
//
//   - A sink returns it if it cannot take this event at the moment, but can take others.
//   - A handler returns it if it cannot take this delta at the moment, because an API that it needs
//     does not answer, or asks for time. The call is not an attempt.
func Postpone(err error, after time.Duration) error { return &markedError{err, Postponed, after} }

// Pause pauses the route of the event, regardless of its onFailure, until an operator resumes it. A
// sink returns it for a route that does damage. The other routes of the sink continue.
func Pause(err error) error { return &markedError{err, Paused, 0} }

// explainedError is a rejection with the explanation of the receiver.
type explainedError struct {
	err  error
	said string
}

func (e *explainedError) Error() string { return e.err.Error() }
func (e *explainedError) Unwrap() error { return e.err }

// WithResponse adds a part of the receiver's response to err. The response may repeat the event, so
// the text of the error excludes it: it goes into dead letters only, never into a log or the state
// of the router. said must contain no secret of the request, and be [printable.Clean].
func WithResponse(err error, said string) error { return &explainedError{err, said} }

// ResponseOf returns the text that [WithResponse] added. Empty: there is none.
func ResponseOf(err error) string {
	if e, ok := errors.AsType[*explainedError](err); ok {
		return e.said
	}
	return ""
}

// maxError is the maximum length of the text of an error, in bytes. Errors are logged, shown, and
// kept with dead letters.
const maxError = 1 << 10

// Bound returns err with a text of at most 1 KiB, on one line and without unprintable characters.
// The text of a handler or sink may quote untrusted input. The class, [RetryAfter], [ResponseOf]
// and [Category] are unchanged.
func Bound(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= maxError && printable.IsPlain(text) {
		return err
	}
	// Not a wrapper: a wrapper would keep the whole of err in memory.
	var b error = &boundError{printable.Clean(text, maxError), cause(err)}
	if category := Category(err); category != "" {
		b = Categorize(b, category)
	}
	if said := ResponseOf(err); said != "" {
		b = WithResponse(b, said)
	}
	if class, after := ClassOf(err), RetryAfter(err); class != Failed || after > 0 {
		return &markedError{b, class, after}
	}
	return b
}

// boundError is the shortened text of an error, and the context error in its chain.
type boundError struct {
	text  string
	cause error
}

func (e *boundError) Error() string { return e.text }
func (e *boundError) Unwrap() error { return e.cause }

func cause(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}
