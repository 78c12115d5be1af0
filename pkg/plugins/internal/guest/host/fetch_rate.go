package host

import (
	"context"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// rate limits the number of requests in any period of one second to most. A request waits until the
// oldest of the last most requests is a second old. It is safe for concurrent use.
type rate struct {
	clock timer.Clock
	most  int

	mu     sync.Mutex
	sent   []time.Time // of the last requests, at most most of them
	oldest int         // its index in sent, once that is full
}

// reserve returns the wait for a request. If the wait exceeds longest, ok is false, and the request
// must not be sent.
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

// sleep waits by the clock, or until ctx is done.
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

// Reserve returns the wait for a request to the host by its rate. If the wait exceeds longest, ok
// is false, and the request must not be sent.
func (h *fetchTarget) Reserve(longest time.Duration) (wait time.Duration, ok bool) {
	if h.offline { // no request is sent, and the clock may be fake
		return 0, true
	}
	return h.rate.reserve(longest)
}

// Sleep waits, or returns when ctx is done.
func (h *fetchTarget) Sleep(ctx context.Context, wait time.Duration) { h.rate.sleep(ctx, wait) }
