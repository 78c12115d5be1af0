package wasm

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// clock is the time of a guest that may not see the real one. It stands still during a call, at the time when the router saw the newest
// delta of it, so that the same deltas bring about the same. Sleeping moves it, without waiting; and each look at the monotonic clock
// moves that by a little, so that who waits for it to move does not wait for ever.
type clock struct {
	wall  int64 // nanoseconds since 1970; 0 before the first call
	mono  int64 // nanoseconds since some time; never goes back
	slept int64 // in this call
}

// tick is what a look at the monotonic clock takes.
const tick = int64(time.Microsecond)

// set begins a call. The monotonic clock goes on by as much as the time did.
func (c *clock) set(newest time.Time) {
	c.slept = 0
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

func (c *clock) walltime() (sec int64, nsec int32) {
	t := time.Unix(0, c.now())
	return t.Unix(), int32(t.Nanosecond()) //nolint:gosec // below 1e9
}

func (c *clock) nanotime() int64 {
	c.mono += tick
	return c.mono
}

// maxSleep bounds what a guest can move its clock by at once: one that sleeps "for ever" must not make it overflow.
const maxSleep = int64(24 * time.Hour)

func (c *clock) sleep(ns int64) {
	ns = min(max(ns, 0), maxSleep)
	c.mono += ns
	c.slept += ns
}

// stream is what is random for a guest that may not have real random numbers: it follows from the deltas of the call.
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

// Read implements io.Reader: random numbers for the guest.
func (s *scope) Read(p []byte) (int, error) {
	if s.rights.allow.Random {
		return rand.Read(p)
	}
	s.random.read(p, s.rights.seed, s.batch)
	return len(p), nil
}

// moduleConfig gives WASI the clocks and the random numbers that the guest may have. Where the time is real, sleeping does not wait: it would
// hold a worker.
func (s *scope) moduleConfig(c wazero.ModuleConfig) wazero.ModuleConfig {
	c = c.WithRandSource(s)
	if s.rights.allow.Clock {
		return c.WithSysWalltime().WithSysNanotime()
	}
	return c.WithWalltime(s.clock.walltime, sys.ClockResolution(tick)).WithNanotime(s.clock.nanotime, sys.ClockResolution(tick)).
		WithNanosleep(s.clock.sleep)
}

// hostNow is now_ns().
func hostNow(_ context.Context, c *hostCall) int64 {
	if c.scope.rights.allow.Clock {
		return time.Now().UnixNano()
	}
	return c.scope.clock.now()
}

// hostRandom is random(buf, size).
func hostRandom(_ context.Context, c *hostCall) int64 {
	buf, ok := c.memory.Read(c.u32(0), c.u32(1))
	if !ok {
		return statusInvalid
	}
	if _, err := c.scope.Read(buf); err != nil {
		return statusInvalid
	}
	return statusOK
}
