package rules

import "time"

// jumpy is the least jump of the wall clock after which the records are written again.
const jumpy = time.Second

// wallClock detects jumps of the wall clock. Records contain wall times, and a restart would count
// a jump as elapsed time.
type wallClock struct {
	ahead time.Duration // of the monotonic clock
	known bool
}

// jumped reports whether the wall clock has jumped since the last call that returned true, or since
// the first call. at is now by the monotonic clock.
func (w *wallClock) jumped(now time.Time, at time.Duration) bool {
	ahead := now.Round(0).Sub(time.Unix(0, 0)) - at
	d := ahead - w.ahead
	if w.known && d <= jumpy && d >= -jumpy {
		return false
	}
	before := w.known
	w.ahead, w.known = ahead, true
	return before
}

// showing returns t, which has a reading of the monotonic clock, with another wall time. The two
// clocks are never read at the same moment, so the result is off by some nanoseconds.
func showing(t, wall time.Time) time.Time { return t.Add(wall.Sub(t.Round(0))) }

// unjumped returns noted, or now if the wall clock has jumped in between.
func unjumped(noted, now time.Time) time.Time {
	if off := now.Sub(noted); off > jumpy || off < -jumpy {
		return now
	}
	return noted
}
