package informer

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// Backoff is how long to wait between tries: from Min, doubling, to Max, each up to half longer by chance.
type Backoff struct {
	Min, Max time.Duration
}

// pause is one series of tries.
type pause struct {
	Backoff

	next time.Duration
}

// wait waits for the next try, at least as long as the other side asks for. It returns ctx's error when ctx ends first.
func (p *pause) wait(ctx context.Context, atLeast time.Duration) error {
	p.next = min(max(2*p.next, p.Min), p.Max)
	d := max(p.next+time.Duration(rand.Int64N(int64(p.next/2)+1)), atLeast)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopClock is the real clock, except that what waits on After hears the context. The Reflector has waits that do not.
type stopClock struct {
	clock.RealClock

	ctx context.Context //nolint:containedctx // client-go's interface has no place for it
}

// After implements clock.Clock.
func (c stopClock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(c.ctx, d)
	context.AfterFunc(ctx, func() {
		cancel()
		ch <- time.Now()
	})
	return ch
}
