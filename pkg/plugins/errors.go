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
	var p *postponedError
	if errors.As(err, &p) {
		return p.after
	}
	var l *laterError
	if errors.As(err, &l) {
		return l.after
	}
	return 0
}

// pauseError stops the route.
type pauseError struct{ err error }

func (e *pauseError) Error() string { return e.err.Error() }
func (e *pauseError) Unwrap() error { return e.err }

// Pause says that the route of an event must not go on, whatever its onFailure is: it owes the event, and is paused until somebody has
// looked at it. It is for a sink that finds that a route does harm. The sink itself is well, and other routes go on.
func Pause(err error) error { return &pauseError{err} }

// IsPause reports whether err was made by [Pause].
func IsPause(err error) bool {
	var p *pauseError
	return errors.As(err, &p)
}

// postponedError is about one event at a sink that takes others.
type postponedError struct{ laterError }

// Postpone says that a sink cannot take this event at the moment, not before the given time (0: unknown), although it takes others: the
// event is tried again like one of a sink that is unavailable, but the sink is not taken for unavailable.
func Postpone(err error, after time.Duration) error { return &postponedError{laterError{err, after}} }

// IsPostponed reports whether err was made by [Postpone].
func IsPostponed(err error) bool {
	var p *postponedError
	return errors.As(err, &p)
}
