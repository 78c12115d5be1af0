package fetch

import (
	"context"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// rate lets through as many requests as there may be in a second, whatever second that is: so many
// before, one was sent a second ago. It is safe for concurrent use.
type rate struct {
	clock timer.Clock
	most  int

	mu     sync.Mutex
	sent   []time.Time // of the last requests, at most as many as most
	oldest int         // where in sent, once that is full
}

// reserve returns how long a request has to wait. If that is longer than it can, ok is false, and
// the request must not be sent.
func (r *rate) reserve(longest time.Duration) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if len(r.sent) < r.most {
		r.sent = append(r.sent, now)
		return 0, true
	}
	at := r.sent[r.oldest].Add(time.Second)
	if at.Before(now) {
		at = now
	}
	if wait = at.Sub(now); wait > longest {
		return wait, false
	}
	r.sent[r.oldest] = at
	r.oldest = (r.oldest + 1) % r.most
	return wait, true
}

// sleep waits so long by the clock, or until ctx is done.
func (r *rate) sleep(ctx context.Context, wait time.Duration) {
	over := make(chan struct{})
	t := r.clock.NewTimer(sync.OnceFunc(func() { close(over) }))
	defer t.Stop()
	t.Set(r.clock.Now().Add(wait))
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Reserve returns how long a request to the host has to wait for its rate. If that is longer than
// it can, ok is false, and the request must not be sent.
func (h *Target) Reserve(longest time.Duration) (wait time.Duration, ok bool) {
	if h.offline { // nothing is sent, and the clock may stand still
		return 0, true
	}
	return h.rate.reserve(longest)
}

// Sleep waits so long, or until ctx is done.
func (h *Target) Sleep(ctx context.Context, wait time.Duration) { h.rate.sleep(ctx, wait) }
