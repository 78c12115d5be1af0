package pipeline_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// timedSink is a sink that records the time of each event.
type timedSink struct {
	recordingSink

	began time.Time
	list  []string
}

func (s *timedSink) Write(ctx context.Context, events []event.Event) []error {
	errs := s.recordingSink.Write(ctx, events)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range events {
		if errs == nil || errs[i] == nil {
			s.list = append(s.list, fmt.Sprint(time.Since(s.began).Round(100*time.Millisecond), " ", strings.TrimPrefix(e.Subject, "default/"), "@", e.K8sResourceVersion))
		}
	}
	return errs
}

// noted lists the events with their times. Events of one time are sorted, because there is no order
// across keys.
func (s *timedSink) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.list), func(a, b string) int {
		at, _, _ := strings.Cut(a, " ")
		bt, _, _ := strings.Cut(b, " ")
		first, _ := time.ParseDuration(at)
		second, _ := time.ParseDuration(bt)
		return cmp.Or(cmp.Compare(first, second), cmp.Compare(a, b))
	})
}

func quiet(s *timedSink) spec.Settings {
	return spec.Settings{Name: "r", Sinks: to(s), Debounce: spec.Debounce{Quiet: 5 * time.Second, Max: 11 * time.Second}}
}

// TestDebounce: the net change of an object is delivered after a quiet period, or after the maximum
// time if it never is quiet. Objects do not wait for each other.
func TestDebounce(t *testing.T) {
	// Guarantee: debounce
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		b := start(t, quiet(s))
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "gone", 0, 2))
		pass(2 * time.Second)
		b.admit(delta(t, event.Updated, "a", 1, 3), delta(t, event.Updated, "b", 1, 4), delta(t, event.Deleted, "gone", 2, 0))
		pass(20 * time.Second) // 22 s
		for i := range 10 {
			b.admit(delta(t, event.Updated, "busy", 10+i, 11+i))
			pass(2 * time.Second)
		}
		pass(time.Minute)
		b.admit(delta(t, event.Updated, "a", 3, 50))
		pass(time.Minute)
		// busy: from 22 s on, at the latest at 33 s; the change at 34 s begins a new window.
		equal(t, "sink", s.noted(), "7s a@3", "7s b@4", "33s busy@16", "45s busy@20", "1m47s a@50")
		if got := s.got(); !slices.Contains(got, "added a@3") || !slices.Contains(got, "updated a@50") {
			t.Errorf("not the net change: %q", got)
		}
		b.balanced("r")
	})
}

// TestDebounceMax: without a maximum time, an object that changes all the time is delivered after
// ten quiet periods.
func TestDebounceMax(t *testing.T) {
	// Guarantee: debounce
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		r := quiet(s)
		r.Debounce.Max = 0
		b := start(t, r)
		for i := range 13 { // until 52 s
			b.admit(delta(t, event.Updated, "busy", 1+i, 2+i))
			pass(4 * time.Second)
		}
		equal(t, "sink", s.noted(), "50s busy@14")
	})
}

// TestDebounceKey: with a key the quiet period is that of the key, and each of its objects is
// delivered once.
func TestDebounceKey(t *testing.T) {
	// Guarantee: debounce
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		r := quiet(s)
		r.Key = initials
		b := start(t, r)
		b.admit(delta(t, event.Updated, "a1", 1, 2))
		pass(4 * time.Second)
		b.admit(delta(t, event.Updated, "a2", 1, 3), delta(t, event.Updated, "b", 1, 4))
		pass(4 * time.Second)
		b.admit(delta(t, event.Updated, "a1", 2, 5))
		pass(time.Minute)
		equal(t, "sink", s.noted(), "9s b@4", "11s a1@5", "11s a2@3")
		b.balanced("r")
	})
}

// TestDebounceRetry: a delta that comes during a retry of the previous one waits behind it, and for
// its own quiet period.
func TestDebounceRetry(t *testing.T) {
	// Guarantee: debounce
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		var down atomic.Bool
		down.Store(true)
		s.refuse = func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		r := quiet(s)
		r.Retry = spec.Retry{Backoff: time.Second, Max: time.Second}
		b := start(t, r)
		b.admit(delta(t, event.Updated, "a", 1, 2))
		pass(20 * time.Second)
		b.admit(delta(t, event.Updated, "a", 2, 3))
		pass(2 * time.Second)
		b.admit(delta(t, event.Updated, "a", 3, 4))
		down.Store(false)
		pass(2 * time.Second)
		if got := s.noted(); len(got) != 1 || !strings.HasSuffix(got[0], " a@2") {
			t.Errorf("before the quiet period is over: %q", got)
		}
		pass(time.Minute)
		equal(t, "the rest", s.noted()[1:], "27s a@4")
		b.balanced("r")
	})
}

// TestDebounceStop: a stop does not wait for quiet periods. Such deltas stay pending and wait for a
// quiet period after the restart; without a Store they are delivered at once.
func TestDebounceStop(t *testing.T) {
	// Guarantee: windows-kept
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		b := start(t, quiet(s))
		b.admit(delta(t, event.Updated, "a", 1, 2))
		pass(time.Second)
		b.drain()
		equal(t, "without a store", s.noted(), "1s a@2")

		s = &timedSink{began: time.Now()}
		k := &flakyStore{fakeStore: fakeStore{}}
		b = openAs(t, pipeline.Config{Store: k}, quiet(s))
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a", 1, 2))
		pass(time.Second)
		b.admit(delta(t, event.Updated, "b", 1, 3))
		pass(4500 * time.Millisecond)
		b.drain()
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.cut(b)
		equal(t, "with a store", s.noted(), "5s a@2")
		pass(time.Hour)
		s = &timedSink{began: time.Now()}
		b = openAs(t, pipeline.Config{Store: k}, quiet(s))
		k.restore(b, "r")
		b.Start(t.Context())
		pass(2 * time.Second)
		b.admit(delta(t, event.Updated, "b", 3, 4), delta(t, event.Updated, "c", 1, 5))
		pass(time.Minute)
		// b@3 may have been tried before
		equal(t, "after the restart", s.noted(), "7s b@3", "7s b@4", "7s c@5")
		b.balanced("r")
	})
}

// TestDebounceTail: a delta that is read back from disk waits for its quiet period.
func TestDebounceTail(t *testing.T) {
	// Guarantee: debounce
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		k := &flakyStore{fakeStore: fakeStore{}}
		r := quiet(s)
		r.Capacity, r.Disk = 2, 1<<20
		b := openAs(t, pipeline.Config{Store: k}, r)
		b.Start(t.Context())
		for i, name := range []string{"a", "b", "c", "d", "c", "e"} {
			b.admit(delta(t, event.Updated, name, 1+i, 2+i))
		}
		k.cut(b)
		pass(time.Minute)
		equal(t, "sink", s.noted(), "5s a@2", "5s b@3", "10s c@6", "10s d@5", "15s e@7")
		b.balanced("r")
		b.drain()
	})
}

// TestDebounceLimit: the limit counts the net changes.
func TestDebounceLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		k := &flakyStore{fakeStore: fakeStore{}}
		r := quiet(s)
		r.Limit = spec.Limit{Key: initials, Every: time.Minute}
		b := openAs(t, pipeline.Config{Store: k}, r)
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a1", 1, 2), delta(t, event.Updated, "a1", 2, 3))
		pass(time.Second)
		b.admit(delta(t, event.Updated, "a2", 1, 4))
		pass(10 * time.Second)
		equal(t, "sink", reported(t, &s.recordingSink), "a1@3")
		b.balanced("r")
		if n := b.value("route_deltas_total", "r", metrics.Suppressed); n != 1 {
			t.Errorf("%v suppressed", n)
		}
		b.admit(delta(t, event.Updated, "a3", 1, 5))
		k.cut(b)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// After the restart the limit applies to the deltas that waited.
		s = &timedSink{began: time.Now()}
		r.Sinks = to(s)
		b = openAs(t, pipeline.Config{Store: k}, r)
		k.restore(b, "r")
		b.Start(t.Context())
		pass(50 * time.Second)
		equal(t, "too early", reported(t, &s.recordingSink))
		b.admit(delta(t, event.Updated, "a4", 1, 6))
		pass(time.Minute)
		equal(t, "after the restart", reported(t, &s.recordingSink), "a4@6 +2")
		b.balanced("r")
	})
}

// TestDebounceLimitPassed: a delta that passed the limit and is still pending after a restart is
// not counted again.
func TestDebounceLimitPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		s.refuse = func(event.Event) error { return errDown }
		k := &flakyStore{fakeStore: fakeStore{}}
		r := quiet(s)
		r.Limit = spec.Limit{Key: initials, Every: time.Hour}
		b := openAs(t, pipeline.Config{Store: k}, r)
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a1", 1, 2))
		pass(time.Second)
		k.cut(b)
		pass(10 * time.Second)
		k.cut(b)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s = &timedSink{began: time.Now()}
		r.Sinks = to(s)
		b = openAs(t, pipeline.Config{Store: k}, r)
		k.restore(b, "r")
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a2", 1, 3))
		pass(time.Minute)
		equal(t, "sink", s.noted(), "5s a1@2")
		b.balanced("r")
	})
}
