package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
)

// clock is the time of a guest that may not see the real one. It stands still during a call, at the
// time when the router saw the newest delta of it, so that the same deltas bring about the same.
// Sleeping moves it, without waiting; and each look at the monotonic clock moves that by a little,
// so that who waits for it to move does not wait for ever.
type clock struct {
	wall  int64 // nanoseconds since 1970; 0 before the first call
	mono  int64 // nanoseconds since some time; never goes back
	slept int64 // in this call
	stale bool  // this call has not looked at it yet
}

// tick is what a look at the monotonic clock takes.
const tick = int64(time.Microsecond)

// set is called before a call's first look. The monotonic clock goes on by as much as the time did.
func (c *clock) set(newest time.Time) {
	c.slept, c.stale = 0, false
	if newest.IsZero() {
		return
	}
	now := newest.UnixNano()
	if c.wall != 0 && now > c.wall {
		c.mono += now - c.wall
	}
	c.wall = now
}

func (c *clock) now() int64 { return c.wall + c.slept }

func (c *clock) nanotime() int64 {
	c.mono += tick
	return c.mono
}

// maxSleep bounds what a guest can move its clock by at once: one that sleeps "for ever" must not
// make it overflow.
const maxSleep = int64(24 * time.Hour)

func (c *clock) sleep(ns int64) {
	ns = min(max(ns, 0), maxSleep)
	c.mono += ns
	c.slept += ns
}

// stream is what is random for a guest that may not have real random numbers: it follows from the
// deltas of the call.
type stream struct{ numbers *mathrand.ChaCha8 }

func (s *stream) reset() { s.numbers = nil }

func (s *stream) read(p []byte, seed string, batch []*event.Delta) {
	if s.numbers == nil {
		sum := sha256.New()
		_, _ = io.WriteString(sum, seed)
		for _, d := range batch {
			o := d.Object()
			fmt.Fprintf(sum, "\x00%s\x00%s\x00%s\x00%s\x00%s", d.Op, d.Source, o.Key(), o.UID(), o.ResourceVersion())
		}
		s.numbers = mathrand.NewChaCha8([32]byte(sum.Sum(nil)))
	}
	_, _ = s.numbers.Read(p) // never fails
}

// fillRandom gives the guest the random numbers that it may have.
func (s *Scope) fillRandom(p []byte) {
	if s.host.allow.Random {
		_, _ = rand.Read(p) // never fails
		return
	}
	s.random.read(p, s.host.seed, s.batch)
}

// randomFuel is what so many random bytes cost.
func (s *Scope) randomFuel(bytes int) int64 {
	if s.host.allow.Random {
		return 2 * fuelPerRandom * int64(bytes)
	}
	return fuelPerRandom * int64(bytes)
}

// wallTime and monotonicTime are the clocks that the guest may have, in nanoseconds.

func (s *Scope) wallTime() int64 {
	if s.host.allow.Clock {
		return s.host.clock.Now().UnixNano()
	}
	return s.madeUpClock().now()
}

func (s *Scope) monotonicTime() int64 {
	if s.host.allow.Clock {
		return int64(s.host.clock.Now().Sub(s.host.began))
	}
	return s.madeUpClock().nanotime()
}

// sleep does not wait: that would hold a worker. A clock that is not the real one shows that the
// time has passed.
func (s *Scope) sleep(ns int64) { s.madeUpClock().sleep(ns) }

// madeUpClock returns the clock of a guest that may not see the real one, at the time of this call.
// Most calls never look.
func (s *Scope) madeUpClock() *clock {
	if s.clock.stale {
		var newest time.Time
		for _, d := range s.batch {
			if d.Seen.After(newest) {
				newest = d.Seen
			}
		}
		s.clock.set(newest)
	}
	return &s.clock
}

// hostNow is now_ns().
func hostNow(_ context.Context, c *hostCall) int64 {
	c.charge(clockFuel)
	return c.scope.wallTime()
}

// hostRandom is random(buf, size).
func hostRandom(_ context.Context, c *hostCall) int64 {
	buf, ok := c.memory.Read(c.u32(0), c.u32(1))
	if !ok {
		return abi.StatusInvalid
	}
	c.charge(c.scope.randomFuel(len(buf)))
	c.scope.fillRandom(buf)
	return abi.StatusOK
}
