package timer

import (
	"context"
	"time"
)

// Clock tells the time and wakes at it. It is safe for concurrent use.
type Clock interface {
	// Now returns the time. What is told apart by it is told apart by monotonic time, on the real
	// clock: a wall clock that jumps makes nothing due, and nothing late.
	Now() time.Time
	// NewTimer makes a timer that calls f, and is not set. f is called in a goroutine of its own
	// or, by a [Fake], in the one that moves it; it must not block.
	NewTimer(f func()) Timer
}

// Timer calls its function at a time. It is safe for concurrent use. It holds nothing that has to
// be given back: one that is out of use is stopped and forgotten.
type Timer interface {
	// Set has the function called once, at that time, in the place of the one that it was set to
	// before; if that is over already, at once, but never by Set itself. A call that has begun is
	// not undone, so the function may come early for the new time. The time is best derived from
	// [Clock.Now].
	Set(at time.Time)
	// Stop has the function not called any more, but for a call that has begun.
	Stop()
}

// Real returns the clock of the machine.
func Real() Clock { return realClock{} }

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

// Scaled returns a clock that shows start now, and whose time passes that many times as fast as
// that of the machine. speed is greater than 0.
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
