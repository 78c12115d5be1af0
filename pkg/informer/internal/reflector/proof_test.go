package reflector

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestProof: a list follows after three barren streams from one position, at most each minute, and
// with a growing pause until a stream proves itself.
func TestProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProof()
		ended := func(from string, stalled, due bool) {
			t.Helper()
			if s, d := p.ended(from); s != stalled || d != due {
				t.Errorf("stalled %v, due %v; want %v, %v", s, d, stalled, due)
			}
		}
		ended("1", false, false)
		ended("1", false, false)
		ended("2", false, false)
		ended("2", false, false)
		ended("2", true, true)
		ended("2", true, false)
		for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 8 * time.Minute} {
			time.Sleep(pause - time.Second)
			ended("2", true, false)
			time.Sleep(time.Second)
			ended("2", true, true)
		}
		p.came()
		ended("2", false, false)
		time.Sleep(8 * time.Minute)
		if !p.silent() || p.silent() {
			t.Error("silence: want one list")
		}
		time.Sleep(time.Minute)
		if !p.silent() {
			t.Error("the pause did not begin anew")
		}
	})
}

// TestSlowed: each list that took too long doubles the waits, and lets a stream of initial events
// be tried again.
func TestSlowed(t *testing.T) {
	q := &quirks{}
	for i := range 8 {
		if got, want := q.wait(time.Minute), time.Minute<<min(i, 5); got != want {
			t.Errorf("after %d: %v, want %v", i, got, want)
		}
		q.noInitialEvents.Store(true)
		if q.slowed(); q.noInitialEvents.Load() {
			t.Error("there is no other stream of initial events")
		}
	}
}
