package wasm

import (
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/timer"
)

// breaker spares the processor a handler that breaks at everything: each failure costs a new guest. After so many failures with no
// success between them it is open for a while, longer each time, and then lets one delta through.
type breaker struct {
	clock timer.Clock

	mu       sync.Mutex
	failures int // since the last success
	pause    time.Duration
	until    time.Time // open until then; zero: closed
	probing  bool      // somebody tries whether it works again
	last     error
}

const (
	breakerFailures = 5
	breakerPause    = time.Second
	breakerLongest  = time.Minute
)

// allow returns how many deltas of n may be handled now. If there are none it returns when to ask again.
func (b *breaker) allow(n int) (allowed int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return n, 0
	}
	if wait = b.until.Sub(b.clock.Now()); wait > 0 {
		return 0, wait
	}
	if b.probing {
		return 0, breakerPause
	}
	b.probing = true
	return min(n, 1), 0
}

// wait returns how long the breaker is open yet, 0 if it is not.
func (b *breaker) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return 0
	}
	return max(0, b.until.Sub(b.clock.Now()))
}

// succeeded is called when a call was answered.
func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.pause, b.until, b.probing, b.last = 0, 0, time.Time{}, false, nil
}

// failed is called when a single delta broke its guest, or no guest could be started. It reports whether that opened the breaker.
func (b *breaker) failed(err error) (pause time.Duration, opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.probing, b.last = false, err
	if b.failures < breakerFailures {
		return 0, false
	}
	b.pause = min(max(2*b.pause, breakerPause), breakerLongest)
	b.until = b.clock.Now().Add(b.pause)
	return b.pause, true
}

// abandoned is called when what was allowed came to nothing, neither good nor bad.
func (b *breaker) abandoned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

func (b *breaker) reason() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}
