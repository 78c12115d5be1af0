package rules_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rules"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// moment is a time as the real clock gives it: wall is what the wall clock shows, and length what has gone by on the other one. Nothing
// but package time can make such times; this is how it keeps them.
func moment(wall time.Time, length time.Duration) time.Time {
	now := time.Now()
	shape := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&now))
	const since1885 = 59453308800 // seconds from the year 1 on
	seconds := wall.Unix() + 62135596800 - since1885
	shape.wall = 1<<63 | uint64(seconds)<<30 | uint64(wall.Nanosecond())
	shape.ext = int64(time.Hour + length)
	return now
}

// stepClock is a clock whose wall clock is not bound to the other one.
type stepClock struct{ now time.Time }

func (c *stepClock) Now() time.Time              { return c.now }
func (c *stepClock) NewTimer(func()) timer.Timer { return noTimer{} }

type noTimer struct{}

func (noTimer) Set(time.Time) {}
func (noTimer) Stop()         {}

// TestConditionsWallClock: while the router runs, a wall clock that goes back or ahead by days makes nothing due, and nothing late; what is kept
// follows it, so that a restart by the new wall clock goes on as if the clock had always been right.
func TestConditionsWallClock(t *testing.T) {
	for _, jump := range []time.Duration{-48 * time.Hour, -time.Minute, 0, time.Minute, 48 * time.Hour} {
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		clock := &stepClock{moment(wall, 0)}
		if again := moment(wall.Add(jump), time.Second).Sub(clock.now); again != time.Second {
			t.Fatalf("these times are not what they seem: %v", again)
		}
		cfg := rules.ConditionConfig{Sources: []string{"pods"}, For: 2 * time.Minute}
		var due []*rules.Condition
		heard := func(_ *rules.Conditions, c *rules.Condition) { due = append(due, c) }
		s := rules.NewConditions(cfg, timer.NewWheel(clock), rules.NewCensus(), heard)
		d := &event.Delta{Source: "pods", Op: event.Added, New: object(t, "a", "1", 1)}
		s.Observe(d, true, false, clock.now, nil)
		saved := map[string][]byte{}
		keep := func() {
			for _, r := range s.Dirty(clock.now) {
				saved[r.Key] = r.Value
			}
		}
		keep()
		clock.now = moment(wall.Add(time.Minute).Add(jump), time.Minute)
		keep()
		for c := range s.All() {
			if s.IsDue(c, clock.now) {
				t.Errorf("jump %v: due after a minute", jump)
			}
			if !s.IsDue(c, moment(wall.Add(2*time.Minute).Add(jump), 2*time.Minute)) {
				t.Errorf("jump %v: not due after two minutes", jump)
			}
		}
		restarted := timer.NewFake(wall.Add(90 * time.Second).Add(jump))
		var told *event.Delta
		again := rules.NewConditions(cfg, timer.NewWheel(restarted), rules.NewCensus(), func(s *rules.Conditions, c *rules.Condition) { told = s.Fire(c, restarted.Now()) })
		for key, value := range saved {
			if err := again.Restore(rules.Record{Key: key, Value: value}, func(string) *event.Resource { return resource }, restarted.Now()); err != nil {
				t.Fatal(err)
			}
		}
		restarted.Advance(wall.Add(119 * time.Second).Add(jump))
		if told != nil {
			t.Errorf("jump %v: told early", jump)
		}
		restarted.Advance(wall.Add(121 * time.Second).Add(jump))
		if told == nil || told.Late {
			t.Errorf("jump %v: told %v", jump, told)
		}
	}
}

// TestAbsencesWallClock: likewise of what is gone.
func TestAbsencesWallClock(t *testing.T) {
	for _, jump := range []time.Duration{-48 * time.Hour, 0, 48 * time.Hour} {
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		clock := &stepClock{moment(wall, 0)}
		d := &event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, "a", "1", 1)}
		s := rules.NewAbsences(2*time.Minute, timer.NewWheel(clock), func(*rules.Absence) {})
		s.Hold(d, "", clock.now)
		saved := map[string][]byte{}
		keep := func() {
			for _, r := range s.Dirty(clock.now, func(*event.Delta) []byte { return nil }) {
				saved[r.Key] = r.Value
			}
		}
		keep()
		clock.now = moment(wall.Add(time.Minute).Add(jump), time.Minute)
		keep()
		restarted := timer.NewFake(wall.Add(90 * time.Second).Add(jump))
		var told *event.Delta
		var again *rules.Absences
		again = rules.NewAbsences(2*time.Minute, timer.NewWheel(restarted), func(a *rules.Absence) { told = again.Fire(a, restarted.Now()) })
		for key, value := range saved {
			if err := again.Restore(rules.Record{Key: key, Value: value}, func([]byte) (*event.Delta, error) { return d, nil }, restarted.Now()); err != nil {
				t.Fatal(err)
			}
		}
		restarted.Advance(wall.Add(119 * time.Second).Add(jump))
		if told != nil {
			t.Errorf("jump %v: told early", jump)
		}
		restarted.Advance(wall.Add(121 * time.Second).Add(jump))
		if told == nil || told.Late {
			t.Errorf("jump %v: told %v", jump, told)
		}
	}
}

// TestAbsencesClockBack: where the wall clock has gone back between two lives, nothing waits for longer than it has to from the start on.
func TestAbsencesClockBack(t *testing.T) {
	clock := timer.NewFake(start)
	d := &event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, "a", "1", 1)}
	s := rules.NewAbsences(2*time.Minute, timer.NewWheel(clock), func(*rules.Absence) {})
	s.Hold(d, "", start)
	records := s.Dirty(start, func(*event.Delta) []byte { return nil })
	back := timer.NewFake(start.Add(-time.Hour))
	var told *event.Delta
	var again *rules.Absences
	again = rules.NewAbsences(2*time.Minute, timer.NewWheel(back), func(a *rules.Absence) { told = again.Fire(a, back.Now()) })
	if err := again.Restore(records[0], func([]byte) (*event.Delta, error) { return d, nil }, back.Now()); err != nil {
		t.Fatal(err)
	}
	back.Advance(start.Add(-time.Hour + 2*time.Minute - 1))
	if told != nil {
		t.Error("told early")
	}
	back.Advance(start.Add(-time.Hour + 2*time.Minute))
	if told == nil || told.Late {
		t.Errorf("told %v", told)
	}
}

// TestLimitWallClock: likewise of what a limit has let through.
func TestLimitWallClock(t *testing.T) {
	for _, jump := range []time.Duration{-30 * time.Second, 0, 48 * time.Hour} {
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		cfg := rules.LimitConfig{Every: 2 * time.Minute}
		now := moment(wall, 0)
		l := rules.NewLimit(cfg, now)
		l.Allow("a", 1, now)
		saved := map[string][]byte{}
		for _, now := range []time.Time{now, moment(wall.Add(time.Minute).Add(jump), time.Minute)} {
			for _, r := range l.Dirty(now) {
				saved[r.Key] = r.Value
			}
		}
		again := rules.NewLimit(cfg, wall.Add(90*time.Second).Add(jump))
		for key, value := range saved {
			if err := again.Restore(rules.Record{Key: key, Value: value}, wall.Add(90*time.Second).Add(jump)); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok := allow(again, "a", 1, wall.Add(2*time.Minute-1).Add(jump)); ok {
			t.Errorf("jump %v: it passes early", jump)
		}
		if _, ok := allow(again, "a", 1, wall.Add(2*time.Minute).Add(jump)); !ok {
			t.Errorf("jump %v: it has to wait too long", jump)
		}
	}
}
