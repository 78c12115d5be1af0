package plugins

import (
	"errors"
	"time"
)

// rejectedError marks an error that comes again however often it is tried.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string { return e.err.Error() }
func (e *rejectedError) Unwrap() error { return e.err }

// laterError carries the time that a sink asked to be left alone.
type laterError struct {
	err   error
	after time.Duration
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// Reject marks err as one that trying again cannot mend: a 4xx answer, a malformed event, a deterministic trap of a guest.
func Reject(err error) error { return &rejectedError{err} }

// IsRejected reports whether err was marked by [Reject].
func IsRejected(err error) bool {
	var r *rejectedError
	return errors.As(err, &r)
}

// RetryLater says that err goes away by itself, not before the given time (a Retry-After header; 0: unknown).
func RetryLater(err error, after time.Duration) error { return &laterError{err, after} }

// unavailableError marks an error that is about the handler, not about what it was given.
type unavailableError struct{ laterError }

// Unavailable says that a handler cannot take anything at the moment, not before the given time (0: unknown). Unlike other errors of
// handlers it is no attempt: the delta is tried again until it is older than the route's maxAge.
func Unavailable(err error, after time.Duration) error {
	return &unavailableError{laterError{err, after}}
}

// IsUnavailable reports whether err was made by [Unavailable].
func IsUnavailable(err error) bool {
	var u *unavailableError
	return errors.As(err, &u)
}

// RetryAfter returns the least time to wait before another try, 0 if err does not say.
func RetryAfter(err error) time.Duration {
	var u *unavailableError
	if errors.As(err, &u) {
		return u.after
	}
	var l *laterError
	if errors.As(err, &l) {
		return l.after
	}
	return 0
}
