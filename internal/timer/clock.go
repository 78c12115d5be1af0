package timer

import (
	"context"
	"time"
)

// Clock reads the time and makes timers. It is safe for concurrent use.
type Clock interface {
	// Now returns the time. The real clock includes a monotonic reading, so intervals do not change
	// when the wall clock jumps.
	Now() time.Time
	// NewTimer returns a timer that calls f and is not set. f is called in a goroutine of its own,
	// or, with a [Fake], in the goroutine that advances it. f must not block.
	NewTimer(f func()) Timer
}

// Timer calls its function at a time. It is safe for concurrent use. It holds no resources: a timer
// is stopped and dropped.
type Timer interface {
	// Set schedules one call of the function, and replaces the previous time. A time in the past
	// causes a call at once, but never from within Set. A call that has begun is not undone, so the
	// function may run before the new time. Derive the time from [Clock.Now].
	Set(at time.Time)
	// Stop cancels the call, unless it has begun.
	Stop()
}

// Real returns the clock of the machine.
func Real() Clock { return realClock{} }

// Of returns the clock of a caller who may have none, or one without timers.
//
//   - nil: the clock of the machine
//   - a [Clock]: itself
//   - any other: its time, with timers of the machine. Those do not follow a clock that jumps.
func Of(c nower) Clock {
	switch c := c.(type) {
	case nil:
		return Real()
	case Clock:
		return c
	}
	return foreignClock{c}
}

type nower interface{ Now() time.Time }

type foreignClock struct{ nower }

// NewTimer implements Clock.
func (c foreignClock) NewTimer(f func()) Timer { return foreignTimer{Real().NewTimer(f), c} }

type foreignTimer struct {
	Timer

	clock foreignClock
}

// Set implements Timer.
func (t foreignTimer) Set(at time.Time) { t.Timer.Set(time.Now().Add(at.Sub(t.clock.Now()))) }

type realClock struct{}

// Now implements Clock.
func (realClock) Now() time.Time { return time.Now() }

// NewTimer implements Clock.
func (realClock) NewTimer(f func()) Timer {
	t := time.AfterFunc(never, f)
	t.Stop()
	return realTimer{t}
}

// never is longer than a process lives.
const never = 1<<63 - 1

type realTimer struct{ *time.Timer }

// Set implements Timer.
func (t realTimer) Set(at time.Time) { t.Reset(time.Until(at)) }

// Stop implements Timer.
func (t realTimer) Stop() { t.Timer.Stop() }

// Scaled returns a clock that shows start now and runs speed times as fast as the machine's. speed
// is greater than 0.
func Scaled(start time.Time, speed float64) Clock {
	return &scaledClock{begin: time.Now(), start: start.Round(0), speed: speed}
}

type scaledClock struct {
	begin, start time.Time
	speed        float64
}

// Now implements Clock.
func (c *scaledClock) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.begin)) * c.speed))
}

// NewTimer implements Clock.
func (c *scaledClock) NewTimer(f func()) Timer { return scaledTimer{Real().NewTimer(f), c} }

type scaledTimer struct {
	Timer

	clock *scaledClock
}

// Set implements Timer.
func (t scaledTimer) Set(at time.Time) {
	wait := min(float64(at.Sub(t.clock.start))/t.clock.speed, never/2)
	t.Timer.Set(t.clock.begin.Add(time.Duration(wait) + 1)) // not before the clock shows it
}

// Sleep waits for d by the real clock. It returns early with the error of ctx when ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
