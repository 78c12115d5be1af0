// Package outdated marks the errors of sinks about events that were made of an outdated state.
package outdated

import "errors"

// markedError is a marked error.
type markedError struct{ error }

func (e *markedError) Unwrap() error { return e.error }

// Mark marks the error of a write that requires a state which has changed. A postponed event with
// this mark is not written again: the handler makes the events of its delta again, of the present
// state, and all sinks that are not done with the delta get them. After 30 such errors of one delta
// the event is rejected.
func Mark(err error) error { return &markedError{err} }

// Is reports whether an error is marked.
func Is(err error) bool {
	_, ok := errors.AsType[*markedError](err)
	return ok
}
