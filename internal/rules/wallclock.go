package rules

import "time"

// jumpy is by how much the wall clock must have jumped for what was handed over to be corrected.
const jumpy = time.Second

// wallClock notices that the wall clock has jumped: what was handed over has its times, and a
// restart would take the jump for time that has gone by.
type wallClock struct {
	ahead time.Duration // of the other clock
	known bool
}

// jumped reports whether it has since it was asked last, or else since it was asked for the first
// time. now is at by the other clock.
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

// showing returns t, which has a reading of the monotonic clock, with the wall time that it is to
// show. The two clocks are never read at the same moment, so t shows some nanoseconds more or less.
func showing(t, wall time.Time) time.Time { return t.Add(wall.Sub(t.Round(0))) }

// unjumped returns the time that was noted, or, if the wall clock has jumped since, what it is by
// the clock of now.
func unjumped(noted, now time.Time) time.Time {
	if off := now.Sub(noted); off > jumpy || off < -jumpy {
		return now
	}
	return noted
}
