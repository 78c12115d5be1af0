// Package circuit contains the circuit breaker of sinks and WASM guests.
//
//	closed ──failures──► open ──its time is over──► probing ──success──► closed
//	                      ▲                            │
//	                      └──────────failure───────────┘
//
// The supervisor of native plugins does not use it: it restarts a process by itself, without a call
// that could serve as a probe.
package circuit

import (
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/timer"
)

// ProbeTime is the delay for other callers while a probe is in progress.
const ProbeTime = time.Second

// Breaker refuses calls for a while after some failures in a row. The pause doubles until a call
// succeeds. After each pause it permits one call as a probe. It is safe for concurrent use.
type Breaker struct {
	clock timer.Clock
	most  int

	mu       sync.Mutex
	pauses   backoff.Policy
	failures int // in a row, while closed
	trips    int // openings in a row; 0: closed
	until    time.Time
	since    time.Time
	err      error
	probing  bool
	changed  chan struct{}
}

// Permit is the permission of a caller.
type Permit int

// The permits.
const (
	Refused Permit = iota // no call
	Granted               // all calls
	Probe                 // one call; Succeeded, Failed or Abandoned must follow
)

// Status is the state of a breaker.
type Status struct {
	Open    bool
	Until   time.Time       // the time of the next attempt
	Pause   time.Duration   // the time until then, at least 0
	Since   time.Time       // when it opened
	Err     error           // the last failure that opened it
	Changed <-chan struct{} // closed when the status changes
}

// New returns a closed breaker that opens after a number of failures in a row. When it opens for
// the n-th time in a row, it stays open for the n-th delay of pauses.
func New(clock timer.Clock, failures int, pauses backoff.Policy) *Breaker {
	return &Breaker{clock: clock, most: failures, pauses: pauses, changed: make(chan struct{})}
}

// Limit reduces the pauses to those of another user of the breaker if they are shorter; 0: not set.
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

// Status returns the state; for a closed breaker the zero value.
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

// Allow returns the present permission and the status. With a Probe, Until is the time at which the
// caller may send the calls beyond the probe.
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

// Succeeded closes the breaker, and reports whether it was open. A probe that is still in progress
// counts as an ordinary call then.
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

// Failed counts a failure, and reports whether that opened the breaker. The breaker opens at once
// after a probe, or if the other side requests a pause of atLeast. The failure of a call that was
// granted before the breaker opened does not count. The status is the new one.
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

// Abandoned records that a probe ended without a result: another probe may be sent at once.
func (b *Breaker) Abandoned(p Permit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p == Probe && b.probing {
		b.probing = false
		b.notify()
	}
}

// notify closes the channel Changed. mu is held.
func (b *Breaker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}
