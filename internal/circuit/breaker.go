// Package circuit has the circuit breaker that stands before sinks and WASM guests.
//
//	closed ──failures──► open ──its time is over──► probing ──success──► closed
//	                      ▲                            │
//	                      └──────────failure───────────┘
//
// The supervisor of native plugins is no breaker: it starts the process again itself, whether
// anybody calls or not, and a start is not a call that a caller makes on trial.
package circuit

import (
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/timer"
)

// ProbeTime is how soon to ask again while the probe of another caller is under way.
const ProbeTime = time.Second

// Breaker refuses calls after some that failed in a row, for a while, which doubles until a call
// succeeds. Then it permits one call as a probe. It is safe for concurrent use.
type Breaker struct {
	clock timer.Clock
	most  int

	mu       sync.Mutex
	pauses   backoff.Policy
	failures int // in a row, before it opened
	trips    int // openings in a row; 0: closed
	until    time.Time
	since    time.Time
	err      error
	probing  bool
	changed  chan struct{}
}

// Permit says which calls a caller may make.
type Permit int

// The permits.
const (
	Refused Permit = iota // none
	Granted               // all
	Probe                 // one, of which Succeeded, Failed or Abandoned must tell
)

// Status is the state of a breaker.
type Status struct {
	Open    bool
	Until   time.Time       // when to ask again
	Pause   time.Duration   // how long it is until then, at least 0
	Since   time.Time       // when it opened
	Err     error           // of the last failure that opened it
	Changed <-chan struct{} // closed when the status changes
}

// New returns a closed breaker, which that many failures in a row open. When it opens for the n-th
// time in a row, it stays open for the n-th delay of pauses.
func New(clock timer.Clock, failures int, pauses backoff.Policy) *Breaker {
	return &Breaker{clock: clock, most: failures, pauses: pauses, changed: make(chan struct{})}
}

// Limit lowers the pauses to those of another user of the breaker, where they are shorter; 0 is
// none.
func (b *Breaker) Limit(p backoff.Policy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pauses.Min == 0 || p.Min < b.pauses.Min {
		b.pauses.Min = p.Min
	}
	if b.pauses.Max == 0 || p.Max < b.pauses.Max {
		b.pauses.Max = p.Max
	}
	b.pauses.Exact = p.Exact
}

// Status returns the state. That of a closed breaker is the zero value.
func (b *Breaker) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trips == 0 {
		return Status{}
	}
	return b.status()
}

// status returns the status of a breaker that is not closed. mu is held.
func (b *Breaker) status() Status {
	now, until := b.clock.Now(), b.until
	if b.probing {
		until = now.Add(ProbeTime)
	}
	return Status{Open: true, Until: until, Pause: max(0, until.Sub(now)), Since: b.since, Err: b.err, Changed: b.changed}
}

// Allow returns which calls may be made now, and the status. With a Probe, Until is when to ask for
// what the probe left over.
func (b *Breaker) Allow() (Permit, Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trips == 0 {
		return Granted, Status{}
	}
	now := b.clock.Now()
	if b.probing || now.Before(b.until) {
		return Refused, b.status()
	}
	b.probing = true
	b.notify()
	s := b.status()
	s.Until, s.Pause = now.Add(b.pauses.Min), b.pauses.Min
	return Probe, s
}

// Succeeded closes the breaker, and reports whether it was open. A probe that is still under way is
// then a call like any other.
func (b *Breaker) Succeeded() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed = b.trips > 0
	b.failures, b.trips, b.err, b.probing = 0, 0, nil, false
	if closed {
		b.notify()
	}
	return closed
}

// Failed counts a failure, and reports whether that opened the breaker. It opens at once after a
// probe, or if the other side asks for a pause: atLeast. The failure of a call that was granted
// before the breaker opened tells nothing new and does not count. The status is the one afterwards.
func (b *Breaker) Failed(p Permit, err error, atLeast time.Duration) (opened bool, s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	probe := p == Probe && b.probing
	if !probe && b.trips > 0 {
		return false, b.status()
	}
	b.failures++
	b.probing = false
	if !probe && b.failures < b.most && atLeast == 0 {
		return false, Status{}
	}
	b.trips++
	b.failures = 0
	now := b.clock.Now()
	if b.trips == 1 {
		b.since = now
	}
	b.until, b.err = now.Add(max(b.pauses.Delay(b.trips), atLeast)), err
	b.notify()
	return true, b.status()
}

// Abandoned tells that a probe came to nothing, neither good nor bad: another one may be sent at
// once.
func (b *Breaker) Abandoned(p Permit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p == Probe && b.probing {
		b.probing = false
		b.notify()
	}
}

// notify tells those who wait. mu is held.
func (b *Breaker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}
