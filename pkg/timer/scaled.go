package timer

import "time"

// Scaled returns a clock that shows start now, and whose time passes that many times as fast as that of the machine. speed is greater
// than 0.
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
