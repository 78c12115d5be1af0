package pipeline

import (
	"errors"
	"fmt"
	"time"
)

// tooOldError is why a delta is not delivered that is older than Route.MaxAge.
type tooOldError struct{ age, most time.Duration }

func (e *tooOldError) Error() string {
	return fmt.Sprintf("it is %s old, and the route delivers nothing older than %s (maxAge)", e.age.Round(time.Second), e.most)
}

// age is how long ago the delta was seen, or put through again.
func (w *worker) age(e *entry) time.Duration {
	seen := e.delta.Seen
	if e.letter != 0 {
		seen = e.since // it has its time once more
	}
	if seen.IsZero() {
		return 0
	}
	return w.now().Sub(seen)
}

// tooOld returns an error if a delta must not be delivered any more, wherever it was delivered already.
func (w *worker) tooOld(e *entry) error {
	if w.cfg.MaxAge == 0 {
		return nil
	}
	age := w.age(e)
	if age <= w.cfg.MaxAge {
		return nil
	}
	w.count.errors("max_age").Inc()
	return &tooOldError{age, w.cfg.MaxAge}
}

// patience is how old a delta may become while a handler or sink is unavailable.
func (w *worker) patience() time.Duration {
	if w.cfg.MaxAge > 0 {
		return min(w.cfg.MaxAge, w.cfg.Retry.MaxAge)
	}
	return w.cfg.Retry.MaxAge
}

// pauses returns the first of the failures for which the route would pause; nil: that they are too old is no reason to.
func (w *worker) pauses() *failure {
	for i := range w.failures {
		var old *tooOldError
		if !errors.As(w.failures[i].reason, &old) {
			return &w.failures[i]
		}
	}
	return nil
}
