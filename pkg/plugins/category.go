package plugins

import (
	"context"
	"errors"
)

// categorizedError is an error with a text of a fixed vocabulary.
type categorizedError struct {
	err      error
	category string
}

func (e *categorizedError) Error() string { return e.err.Error() }
func (e *categorizedError) Unwrap() error { return e.err }

// Categorize adds a category to err, such as "answered 403 Forbidden". It replaces the text of err
// in the dead letters of routes that get Secrets. So category must be a text of a fixed vocabulary:
// statuses and the words of the router, without any value of an event, a response or the
// configuration. The text of the error is unchanged.
func Categorize(err error, category string) error { return &categorizedError{err, category} }

// Category returns the text of the outermost [Categorize], or of [Transport]. Empty: there is none.
func Category(err error) string {
	if e, ok := errors.AsType[*categorizedError](err); ok {
		return e.category
	}
	if e, ok := errors.AsType[*transportError](err); ok {
		return e.text
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return ""
}
