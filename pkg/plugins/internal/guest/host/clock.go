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
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// clock is the clock of a guest without a grant for the real one. During a call it shows the time
// at which the router saw the newest delta of the call, so the same deltas have the same effect.
// Sleeping advances it without waiting. Each reading of the monotonic clock advances that a little,
// so that a loop that waits for a change ends.
type clock struct {
	wall  int64 // nanoseconds since 1970; 0 before the first call
	mono  int64 // nanoseconds since an arbitrary time; never goes back
	slept int64 // in this call
	stale bool  // not yet set in this call
}

// tick is the advance of the monotonic clock per reading.
const tick = int64(time.Microsecond)

// set is called before the first reading in a call. The monotonic clock advances by the same time
// as the wall clock.
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

// maxSleep is the maximum advance of one sleep, so that a sleep "for ever" does not overflow the
// clock.
const maxSleep = int64(24 * time.Hour)

func (c *clock) sleep(ns int64) {
	ns = min(max(ns, 0), maxSleep)
	c.mono += ns
	c.slept += ns
}

// stream generates the random numbers of a guest without a grant for real ones. They depend on the
// deltas of the call only.
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

// fillRandom fills p with real random numbers if granted, or else with those of the stream.
func (s *Scope) fillRandom(p []byte) {
	if s.host.allow.Random {
		numbers, _ := s.answers.obtain("random", "", func() ([]byte, int32) {
			_, _ = rand.Read(p) // never fails
			return s.answers.Copied(p), abi.StatusOK
		})
		if s.host.replay != nil {
			copy(p, numbers)
		}
		return
	}
	s.random.read(p, s.host.seed, s.batch)
}

// randomFuel returns the fuel for random bytes.
func (s *Scope) randomFuel(bytes int) int64 {
	if s.host.allow.Random {
		return 2 * fuelPerRandom * int64(bytes)
	}
	return fuelPerRandom * int64(bytes)
}

// wallTime and monotonicTime return the guest's clocks in nanoseconds.

func (s *Scope) wallTime() int64 {
	if s.host.allow.Clock {
		return s.answers.number("clock", func() int64 { return s.host.clock.Now().UnixNano() })
	}
	return s.madeUpClock().now()
}

func (s *Scope) monotonicTime() int64 {
	if s.host.allow.Clock {
		return s.answers.number("monotonic", func() int64 { return int64(s.host.clock.Now().Sub(s.host.began)) })
	}
	return s.madeUpClock().nanotime()
}

// sleep does not wait, because that would block a worker. It advances a clock that is not the real
// one.
func (s *Scope) sleep(ns int64) { s.madeUpClock().sleep(ns) }

// madeUpClock returns the clock of a guest without a grant for the real one, set to the time of
// this call. Most calls never read it.
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

// hostNow implements now_ns().
func hostNow(_ context.Context, c *hostCall) int64 {
	c.charge(clockFuel)
	return c.scope.wallTime()
}

// hostRandom implements random(buf, size).
func hostRandom(_ context.Context, c *hostCall) int64 {
	buf, ok := c.memory.Read(c.u32(0), c.u32(1))
	if !ok {
		return abi.StatusInvalid
	}
	c.charge(c.scope.randomFuel(len(buf)))
	c.scope.fillRandom(buf)
	return abi.StatusOK
}
