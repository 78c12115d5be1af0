package plugins

import (
	"context"
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// Class says what the router does after an error about an event or a delta. A sink returns one
// error per event; a handler returns one per delta, or one about its batch.
//
//	class      made by                  after an error of a sink, the event    after an error of a handler, the delta
//	Failed     RetryLater, or unmarked  is retried until maxAge                is retried, at most retry.attempts times
//	Postponed  Postpone                 is retried until maxAge                is retried until maxAge
//	Rejected   Reject                   is not retried                         is not retried
//	Paused     Pause                    stays pending, and its route pauses    is retried, at most retry.attempts times
//
// What is not retried, or no longer, is treated as the route's onFailure says. If all events of a
// Write failed, the sink counts as unavailable, and its circuit breaker may open. Any other class
// is a sign that the sink works. If a batch failed, each of its deltas is retried alone, and that
// Handle does not count as an attempt.
type Class uint8

// The classes. The class of an error is that of the outermost mark in its chain.
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

// ClassOf returns the class of an error: [Failed] for nil and for an error without a mark.
func ClassOf(err error) Class {
	if m, ok := errors.AsType[*markedError](err); ok {
		return m.class
	}
	return Failed
}

// RetryAfter returns the least time before the next attempt, which the outermost mark of an error
// has; 0: it has none.
func RetryAfter(err error) time.Duration {
	if m, ok := errors.AsType[*markedError](err); ok {
		return m.after
	}
	return 0
}

// Reject marks err as permanent: a 4xx response, a malformed event, a deterministic trap of a
// guest.
func Reject(err error) error { return &markedError{err, Rejected, 0} }

// RetryLater marks err as [Failed], with the least time before the next attempt (a Retry-After
// header; 0: unknown).
func RetryLater(err error, after time.Duration) error { return &markedError{err, Failed, after} }

// Postpone marks err as temporary, with the least time before the next attempt (0: unknown). A sink
// cannot take this event at the moment, although it takes others; or a handler cannot take any
// delta, so that this was no attempt.
func Postpone(err error, after time.Duration) error { return &markedError{err, Postponed, after} }

// Pause makes a sink's route pause, whatever its onFailure is, until somebody resumes it. It is for
// a sink that finds that a route does harm. The other routes of the sink go on.
func Pause(err error) error { return &markedError{err, Paused, 0} }

// explainedError has the receiver's explanation of a rejection.
type explainedError struct {
	err  error
	said string
}

func (e *explainedError) Error() string { return e.err.Error() }
func (e *explainedError) Unwrap() error { return e.err }

// Explain adds to err a part of the receiver's response, which is no part of the text of the error:
// it may echo the event, so it belongs to a dead letter and neither into a log nor into the state
// of the router. It has no secrets of the request, and is [printable.Clean].
func Explain(err error, said string) error { return &explainedError{err, said} }

// Said returns what was added by [Explain]; empty: nothing.
func Said(err error) string {
	if e, ok := errors.AsType[*explainedError](err); ok {
		return e.said
	}
	return ""
}

// maxError is how long the text of an error may be, in bytes: errors are logged, shown and kept
// with dead letters.
const maxError = 1 << 10

// Bound returns err with a text of at most 1 KiB on one line, without characters that do not print:
// a handler or sink may quote the text of a stranger. The class, [RetryAfter] and [Said] stay.
func Bound(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= maxError && printable.IsPlain(text) {
		return err
	}
	// Not a wrapper: that would keep the whole of err in memory.
	var b error = &boundError{printable.Clean(text, maxError), cause(err)}
	if said := Said(err); said != "" {
		b = Explain(b, said)
	}
	if class, after := ClassOf(err), RetryAfter(err); class != Failed || after > 0 {
		return &markedError{b, class, after}
	}
	return b
}

// boundError is the text of an error, and the error of a context that it came from.
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
