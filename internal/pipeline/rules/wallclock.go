package rules

import "time"

// jumpThreshold is the least jump of the wall clock after which the records are written again.
const jumpThreshold = time.Second

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
	if w.known && d <= jumpThreshold && d >= -jumpThreshold {
		return false
	}
	before := w.known
	w.ahead, w.known = ahead, true
	return before
}

// withWall returns t, which has a reading of the monotonic clock, with another wall time. The two
// clocks are never read at the same moment, so the result is off by some nanoseconds.
func withWall(t, wall time.Time) time.Time { return t.Add(wall.Sub(t.Round(0))) }

// afterJump returns noted, or now if the wall clock has jumped in between.
func afterJump(noted, now time.Time) time.Time {
	if off := now.Sub(noted); off > jumpThreshold || off < -jumpThreshold {
		return now
	}
	return noted
}
