package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// tooOldError is the error for a delta that is older than Config.MaxAge.
type tooOldError struct{ age, most time.Duration }

func (e *tooOldError) Error() string {
	return fmt.Sprintf("the delta is %s old; maxAge of the route is %s", printable.Duration(e.age), e.most)
}

// age returns the time since the delta was seen, or since its redelivery began.
func (b *Batch) age(e *queue.Entry) time.Duration {
	seen := e.Delta.Seen
	if e.DeadLetter != 0 || e.Work != 0 && e.Delta.Redelivered {
		seen = e.Since // a redelivery starts the age again
	}
	if seen.IsZero() {
		return 0
	}
	return b.env.Clock.Now().Sub(seen)
}

// tooOld returns an error if a delta exceeds MaxAge. Targets that are already done with it are not
// affected.
func (b *Batch) tooOld(e *queue.Entry) error {
	if b.settings.MaxAge == 0 {
		return nil
	}
	age := b.age(e)
	if age <= b.settings.MaxAge {
		return nil
	}
	b.settings.Count().Errors("max_age").Inc()
	return &tooOldError{age, b.settings.MaxAge}
}

// expired reports whether an entry is too old to be retried at an unavailable handler or sink.
func (b *Batch) expired(ctx context.Context, e *queue.Entry, err error) bool {
	patience := b.settings.Retry.MaxAge
	if b.settings.MaxAge > 0 {
		patience = min(b.settings.MaxAge, patience)
	}
	return ctx.Err() == nil && !errors.Is(err, context.Canceled) && b.age(e) > patience
}
