package rules_test

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// moment returns a time as the real clock does: wall is the wall clock, and length the monotonic
// clock. Only package time can make such times, so this uses its internal representation.
func moment(wall time.Time, length time.Duration) time.Time {
	now := time.Now()
	shape := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&now))
	const since1885 = 59453308800 // from the year 1 on
	seconds := wall.Unix() + 62135596800 - since1885
	shape.wall = 1<<63 | uint64(seconds)<<30 | uint64(wall.Nanosecond())
	shape.ext = int64(time.Hour + length)
	return now
}

// stepClock is a clock whose wall clock is independent of its monotonic clock.
type stepClock struct{ now time.Time }

func (c *stepClock) Now() time.Time              { return c.now }
func (c *stepClock) NewTimer(func()) timer.Timer { return noTimer{} }

type noTimer struct{}

func (noTimer) Set(time.Time) {}
func (noTimer) Stop()         {}

// TestConditionsWallClock: while the router runs, a jump of the wall clock by days makes no
// condition due or late. The records follow the jump, so that a restart with the new wall clock
// continues as if the clock had always been right.
func TestConditionsWallClock(t *testing.T) {
	// Guarantee: clock-jumps
	for _, jump := range []time.Duration{-48 * time.Hour, -time.Minute, 0, time.Minute, 48 * time.Hour} {
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		clock := &stepClock{moment(wall, 0)}
		if again := moment(wall.Add(jump), time.Second).Sub(clock.now); again != time.Second {
			t.Fatalf("these times are not what they seem: %v", again)
		}
		cfg := rules.ConditionConfig{Sources: []string{"pods"}, For: 2 * time.Minute}
		var due []*rules.Condition
		heard := func(_ *rules.Conditions, c *rules.Condition) { due = append(due, c) }
		s := rules.NewConditions(cfg, timer.NewWheel(clock), rules.NewCensus(), nil, heard)
		d := &event.Delta{Source: "pods", Op: event.Added, New: object(t, "a", "1", 1)}
		s.Observe(d, true, false, "", clock.now, nil)
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
		var reported *event.Delta
		again := rules.NewConditions(cfg, timer.NewWheel(restarted), rules.NewCensus(), nil, func(s *rules.Conditions, c *rules.Condition) {
			edge, _ := s.Fire(c, "", restarted.Now())
			reported = edge.Delta
		})
		for key, value := range saved {
			must.Succeed(t, again.Restore(rules.Record{Key: key, Value: value}, func(string) *event.Resource { return resource }, restarted.Now()))
		}
		restarted.Advance(wall.Add(119 * time.Second).Add(jump))
		if reported != nil {
			t.Errorf("jump %v: reported early", jump)
		}
		restarted.Advance(wall.Add(121 * time.Second).Add(jump))
		if reported == nil || reported.Late {
			t.Errorf("jump %v: reported %v", jump, reported)
		}
	}
}

// TestDeleteHoldsWallClock: the same for delete holds.
func TestDeleteHoldsWallClock(t *testing.T) {
	// Guarantee: clock-jumps
	for _, jump := range []time.Duration{-48 * time.Hour, 0, 48 * time.Hour} {
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		clock := &stepClock{moment(wall, 0)}
		d := &event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, "a", "1", 1)}
		s := rules.NewDeleteHolds(2*time.Minute, rules.HoldShare{}, timer.NewWheel(clock), func(*rules.DeleteHold) {})
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
		var reported *event.Delta
		var again *rules.DeleteHolds
		again = rules.NewDeleteHolds(2*time.Minute, rules.HoldShare{}, timer.NewWheel(restarted), func(a *rules.DeleteHold) { reported = again.Fire(a, restarted.Now()) })
		for key, value := range saved {
			must.Succeed(t, again.Restore(rules.Record{Key: key, Value: value}, func([]byte) (*event.Delta, error) { return d, nil }, restarted.Now()))
		}
		restarted.Advance(wall.Add(119 * time.Second).Add(jump))
		if reported != nil {
			t.Errorf("jump %v: reported early", jump)
		}
		restarted.Advance(wall.Add(121 * time.Second).Add(jump))
		if reported == nil || reported.Late {
			t.Errorf("jump %v: reported %v", jump, reported)
		}
	}
}

// TestDeleteHoldsClockBack: if the wall clock was set back between two processes, no hold takes
// longer than its length from the start on.
func TestDeleteHoldsClockBack(t *testing.T) {
	clock := timer.NewFake(start)
	d := &event.Delta{Source: "pods", Op: event.Deleted, Old: object(t, "a", "1", 1)}
	s := rules.NewDeleteHolds(2*time.Minute, rules.HoldShare{}, timer.NewWheel(clock), func(*rules.DeleteHold) {})
	s.Hold(d, "", start)
	records := s.Dirty(start, func(*event.Delta) []byte { return nil })
	back := timer.NewFake(start.Add(-time.Hour))
	var reported *event.Delta
	var again *rules.DeleteHolds
	again = rules.NewDeleteHolds(2*time.Minute, rules.HoldShare{}, timer.NewWheel(back), func(a *rules.DeleteHold) { reported = again.Fire(a, back.Now()) })
	must.Succeed(t, again.Restore(records[0], func([]byte) (*event.Delta, error) { return d, nil }, back.Now()))
	back.Advance(start.Add(-time.Hour + 2*time.Minute - 1))
	if reported != nil {
		t.Error("reported early")
	}
	back.Advance(start.Add(-time.Hour + 2*time.Minute))
	if reported == nil || reported.Late {
		t.Errorf("reported %v", reported)
	}
}

// TestLimitWallClock: the same for a limit.
func TestLimitWallClock(t *testing.T) {
	// Guarantee: clock-jumps
	for _, jump := range []time.Duration{-30 * time.Second, 0, 48 * time.Hour} {
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		cfg := rules.LimitConfig{Every: 2 * time.Minute}
		now := moment(wall, 0)
		l := rules.NewLimit(cfg, nil, now)
		l.Allow("a", 1, now)
		saved := map[string][]byte{}
		for _, now := range []time.Time{now, moment(wall.Add(time.Minute).Add(jump), time.Minute)} {
			for _, r := range l.Dirty(now) {
				saved[r.Key] = r.Value
			}
		}
		again := rules.NewLimit(cfg, nil, wall.Add(90*time.Second).Add(jump))
		for key, value := range saved {
			must.Succeed(t, again.Restore(rules.Record{Key: key, Value: value}, wall.Add(90*time.Second).Add(jump)))
		}
		if _, ok := allow(again, "a", 1, wall.Add(2*time.Minute-1).Add(jump)); ok {
			t.Errorf("jump %v: it passes early", jump)
		}
		if _, ok := allow(again, "a", 1, wall.Add(2*time.Minute).Add(jump)); !ok {
			t.Errorf("jump %v: it has to wait too long", jump)
		}
	}
}

// TestSinceStays: with the real clock, whose wall and monotonic readings are never from the same
// moment, all edges have the same time and the same Began, even across a restart: receivers
// identify a condition by it, and pending edges are coalesced by it.
func TestSinceStays(t *testing.T) {
	// Guarantee: since
	clock := timer.Real()
	cfg := rules.ConditionConfig{Sources: []string{"pods"}, Every: time.Hour}
	fire := func(*rules.Conditions, *rules.Condition) {}
	wheel := timer.NewWheel(clock)
	defer wheel.Close()
	s := rules.NewConditions(cfg, wheel, rules.NewCensus(), nil, fire)
	defer func() { s.Close() }()
	o := object(t, "a", "1", 1)
	d := &event.Delta{Source: "pods", Op: event.Sync, New: o} // time made it hold
	first := s.Observe(d, true, false, "", clock.Now(), nil)[0]
	same := func(e rules.Edge) {
		t.Helper()
		if !e.Since.Equal(first.Since) || e.Began != first.Began {
			t.Fatalf("since %v (%s), and first %v (%s)", e.Since.UnixNano(), e.Began, first.Since.UnixNano(), first.Began)
		}
	}
	for range 2 {
		for range 1000 {
			edge, ok := s.Remind(d, "", clock.Now())
			if !ok {
				t.Fatal("it is not reported again")
			}
			same(edge)
			c := s.Of("pods", o.Key())
			if now := c.Describe(clock.Now()); !now.Since.Equal(first.Since) || now.Due.Before(now.Since.Add(cfg.Every)) {
				t.Fatalf("described as since %v, due at %v", now.Since, now.Due)
			}
		}
		again := rules.NewConditions(cfg, wheel, rules.NewCensus(), nil, fire)
		for _, r := range s.Dirty(clock.Now()) {
			must.Succeed(t, again.Restore(r, func(string) *event.Resource { return resource }, clock.Now()))
		}
		s.Close()
		s = again
	}
	same(s.Observe(&event.Delta{Source: "pods", Op: event.Deleted, Old: o}, false, false, "", clock.Now(), nil)[0])
}

// TestDueIsExact: by the wall clock in its event, an edge comes exactly `for` after the start of
// its condition, although the wall clock and the monotonic clock are never read at the same moment.
func TestDueIsExact(t *testing.T) {
	const n = 200
	clock := timer.Real()
	wheel := timer.NewWheel(clock)
	defer wheel.Close()
	cfg := rules.ConditionConfig{Sources: []string{"pods"}, For: time.Millisecond}
	due := make(chan *rules.Condition, n)
	s := rules.NewConditions(cfg, wheel, rules.NewCensus(), nil, func(_ *rules.Conditions, c *rules.Condition) { due <- c })
	defer s.Close()
	for i := range n {
		d := &event.Delta{Source: "pods", Op: event.Added, New: object(t, fmt.Sprint("a", i), "1", 1)}
		s.Observe(d, true, false, "", clock.Now(), nil)
	}
	for range n {
		edge, ok := s.Fire(<-due, "", clock.Now())
		if !ok || edge.Seen.Round(0).Sub(edge.Since) != cfg.For {
			t.Fatalf("reported: %v, %v after it began", ok, edge.Seen.Round(0).Sub(edge.Since))
		}
	}
}
