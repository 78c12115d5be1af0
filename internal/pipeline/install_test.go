package pipeline_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestChangedSinks: the sinks of a route change while deltas are pending. A sink that is done with
// a delta stays so at any position, a new one gets the delta, and a removed one is dropped.
func TestChangedSinks(t *testing.T) {
	// Guarantee: reload-backlog
	synctest.Test(t, func(t *testing.T) {
		down := &recordingSink{refuse: func(event.Event) error { return errDown }}
		took := map[string]*recordingSink{"a": {}, "b": {}, "up": {}, "new": {}}
		to := func(name string, s *recordingSink) spec.NamedSink {
			return spec.NamedSink{Name: name, Version: "1", Sink: s}
		}
		first := routeOf("r", "1", down)
		first.Sinks = []spec.NamedSink{to("a", took["a"]), to("b", took["b"]), to("down", down), to("removed", down)}
		first.Retry = spec.Retry{Backoff: time.Second, Max: time.Second}
		saved := fakeStore{}
		b := openAs(t, pipeline.Config{Store: saved}, first)
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "x", 0, 1))
		pass(time.Millisecond)
		second := first
		second.Version = "2"
		second.Sinks = []spec.NamedSink{to("new", took["new"]), {Name: "down", Version: "2", Sink: took["up"]}, to("b", took["b"]), to("a", took["a"])}
		b.exchange(nil, second)
		saved.write(t, b.Dirty())
		pass(time.Minute)
		for name, s := range took {
			equal(t, name, s.got(), "added x@1")
		}
		if saved.write(t, b.Dirty()); len(saved["r"]) != 0 {
			t.Errorf("%v is pending on disk", saved["r"])
		}
		b.balanced("r")
	})
}

// TestChangedRouteOfAStuckHandler: a handler that never returns is abandoned after a while. The new
// handler gets its deltas, once, and the results of the old one are ignored when it returns after
// all.
func TestChangedRouteOfAStuckHandler(t *testing.T) {
	// Guarantee: reload-waits
	synctest.Test(t, func(t *testing.T) {
		s, stuck := &recordingSink{}, make(chan struct{})
		first, second := routeOf("r", "1", s), routeOf("r", "2", s)
		first.Handler = handlerFunc(func(_ context.Context, deltas []*event.Delta) ([]plugins.Result, error) {
			<-stuck
			return handleEach(ok).Handle(t.Context(), deltas)
		})
		second.Handler = handleEach(ok)
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, first)
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2))
		pass(time.Second)
		began := time.Now()
		b.exchange(nil, second)
		if took := time.Since(began); took != 35*time.Second {
			t.Errorf("the reload took %v", took)
		}
		pass(time.Minute)
		equal(t, "delivered", s.got(), "added a@1", "updated a@2")
		close(stuck)
		b.admit(delta(t, event.Updated, "a", 2, 3))
		pass(time.Minute)
		equal(t, "in the end", s.got(), "added a@1", "updated a@2", "updated a@3")
		b.balanced("r")
		if n := b.Pending("r"); n != 0 {
			t.Errorf("%d are pending", n)
		}
	})
}

// TestChangedConcurrency: the number of workers of a route changes with its configuration.
func TestChangedConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working, most atomic.Int64
		s := &recordingSink{before: func(context.Context) {
			now := working.Add(1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
				continue
			}
			time.Sleep(time.Second)
			working.Add(-1)
		}}
		version := 0
		route := func(workers int) spec.Settings {
			version++
			r := routeOf("r", string(rune('0'+version)), s)
			r.Concurrency, r.Batch = workers, spec.Batch{Size: 1}
			return r
		}
		b := start(t, route(2))
		sent := 0
		for _, workers := range []int{2, 5, 1, 3} {
			b.exchange(nil, route(workers))
			most.Store(0)
			for range 12 {
				sent++
				b.admit(delta(t, event.Added, string(rune('A'+sent)), 0, sent))
			}
			pass(time.Minute)
			if n := most.Load(); n != int64(workers) {
				t.Errorf("%d worked at a time, want %d", n, workers)
			}
		}
		if n := len(s.got()); n != sent {
			t.Errorf("%d of %d came", n, sent)
		}
	})
}

// TestChangedWhileItPauses: the result of a batch of the previous configuration does not pause the
// route.
func TestChangedWhileItPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &recordingSink{before: func(context.Context) { time.Sleep(10 * time.Second) }, refuse: func(event.Event) error { return plugins.Reject(errDown) }}
		good := &recordingSink{}
		first, second := routeOf("r", "1", bad), routeOf("r", "2", good)
		first.OnFailure, second.OnFailure = spec.Pause, spec.Pause
		second.Sinks[0].Version = "2"
		b := start(t, first)
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Second)
		b.exchange(nil, second)
		pass(time.Minute)
		if s := b.Status()[0]; s.Paused != "" || s.Pending != 0 {
			t.Errorf("paused: %q, %d pending", s.Paused, s.Pending)
		}
		equal(t, "good", good.got(), "added a@1")
	})
}

// TestChangedKey: pending deltas of a route are ordered by the new key from its change on, behind
// the batches in progress.
func TestChangedKey(t *testing.T) {
	// Guarantee: reload-backlog
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		s := &recordingSink{before: func(context.Context) {
			if writes.Add(1) == 1 {
				time.Sleep(5 * time.Second)
			}
			time.Sleep(10 * time.Second)
		}}
		first, second := routeOf("r", "1", s), routeOf("r", "2", s)
		second.Key = func(context.Context, *event.Delta) (string, error) { return "one", nil }
		first.Concurrency, second.Concurrency = 4, 4
		first.Batch, second.Batch = spec.Batch{Size: 1}, spec.Batch{Size: 1}
		b := start(t, first)
		for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
			b.admit(delta(t, event.Added, name, 0, i+1))
		}
		pass(time.Second)
		change, err := b.Prepare([]spec.Settings{second})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		b.admit(delta(t, event.Added, "g", 0, 7))
		pass(12 * time.Second)
		if n := writes.Load(); n != 4 {
			t.Errorf("%d writes began, want 4: one that began before the change is not over", n)
		}
		change.Finish(t.Context())
		pass(10 * time.Minute)
		got := s.got()
		slices.Sort(got[:4])
		equal(t, "got", got, "added a@1", "added b@2", "added c@3", "added d@4", "added e@5", "added f@6", "added g@7")
		b.balanced("r")
	})
}

// TestChangedWhileItIsAsked: a late verdict of the previous configuration's filter is ignored.
func TestChangedWhileItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, evaluated, ready := &recordingSink{}, make(chan struct{}), make(chan struct{})
		first, second := routeOf("r", "1", s), routeOf("r", "2", s)
		first.Ready = ready
		first.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) { <-evaluated; return false, nil })
		b := start(t, first)
		b.admit(delta(t, event.Added, "a", 0, 1))
		close(ready)
		pass(time.Second)
		b.exchange(nil, second)
		close(evaluated)
		pass(time.Second)
		equal(t, "delivered", s.got(), "added a@1")
		b.balanced("r")
	})
}

// TestChangedDuringRescan: a rescan of a condition that was changed in the meantime does not count
// for the new one.
func TestChangedDuringRescan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route := func(version string) spec.Settings {
			r := routeOf("r", version, &recordingSink{})
			r.Ops, r.When = edges, spec.When{Filter: whenOn, Version: version}
			return r
		}
		b := start(t, route("1"))
		rescan, err := b.Rescan("r")
		if err != nil {
			t.Fatal(err)
		}
		b.exchange(nil, route("2"))
		if commit, err := rescan.Admit(t.Context(), conditionDelta(t, event.Sync, "a", 1, true)); commit != nil || err != nil {
			t.Errorf("it goes on: %v", err)
		}
		rescan.End(func(string) bool { return true })
		if !b.NeedsRescan("r") {
			t.Error("the new condition has not looked, and needs no look")
		}
	})
}
