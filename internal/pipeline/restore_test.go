package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// restart creates and starts a pipeline of a route with pending deltas.
func restart(t testing.TB, r spec.Settings, pending ...checkpoint.Pending) *harness {
	t.Helper()
	b := openAs(t, pipeline.Config{Store: fakeStore{}}, r)
	if err := b.Restore("route0", pending, checkpoint.Backlog{}); err != nil {
		t.Fatal(err)
	}
	b.Start(t.Context())
	return b
}

func TestRestoreRefuses(t *testing.T) {
	r := spec.Settings{Sinks: to(&recordingSink{})}
	a := checkpoint.Pending{ID: 1, Delta: delta(t, event.Added, "a", 0, 1)}
	tests := map[string]struct {
		fresh   bool
		do      func(*harness)
		route   string
		pending []checkpoint.Pending
		want    string
	}{
		"no such route": {route: "other", want: "no such route"},
		"not durable":   {fresh: true, pending: []checkpoint.Pending{a}, want: "not durable"},
		"started":       {do: func(b *harness) { b.Start(t.Context()) }, want: "has started"},
		"admitted":      {do: func(b *harness) { b.admit(a.Delta) }, pending: []checkpoint.Pending{a}, want: "has pending deltas already"},
		"twice":         {do: func(b *harness) { _ = b.Restore("route0", []checkpoint.Pending{a}, checkpoint.Backlog{}) }, pending: []checkpoint.Pending{a}, want: "has pending deltas already"},
		"same number":   {pending: []checkpoint.Pending{a, a}, want: "two deltas 1"},
		"no delta":      {pending: []checkpoint.Pending{{ID: 4}}, want: "delta 4 has no object"},
		"no object":     {pending: []checkpoint.Pending{{ID: 4, Delta: &event.Delta{}}}, want: "delta 4 has no object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := pipeline.Config{Store: fakeStore{}}
			if test.fresh {
				cfg.Store = nil
			}
			b := openAs(t, cfg, r)
			if test.do != nil {
				test.do(b)
			}
			if test.route == "" {
				test.route = "route0"
			}
			if err := b.Restore(test.route, test.pending, checkpoint.Backlog{}); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `"`+test.route+`"`) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s0, s1 := &recordingSink{}, &recordingSink{}
		var attempts int
		r := spec.Settings{Sinks: to(s0, s1), Retry: spec.Retry{Attempts: 3}, Handler: handleEach(func(d *event.Delta) plugins.Result {
			if d.Key().Name == "bad" {
				attempts++
				return plugins.Result{Verdict: plugins.Retry, Err: errDown}
			}
			return plugins.Result{Events: []plugins.Emit{{Data: event.Payload(d)}}}
		})}
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, r)
		err := b.Restore("route0", []checkpoint.Pending{
			{ID: 9, Delta: delta(t, event.Updated, "a", 2, 3)},
			{ID: 4, Delta: delta(t, event.Added, "a", 0, 1), Closed: []string{"s0"}},
			// a sink that was removed
			{ID: 7, Delta: delta(t, event.Updated, "a", 1, 2), Closed: []string{"gone"}},
			{ID: 5, Delta: delta(t, event.Added, "b", 0, 4), Closed: []string{"s0", "gone", "s1"}},
			{ID: 8, Delta: delta(t, event.Added, "bad", 0, 5), Attempts: 2},
		}, checkpoint.Backlog{})
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Pending("route0"); n != 4 {
			t.Errorf("%d pending, want 4", n)
		}
		b.admit(delta(t, event.Deleted, "a", 6, 0))
		b.dirty("restored", "10 deleted a@6 unseen", "-5") // the filter is not evaluated yet
		b.Start(t.Context())
		b.drain()
		equal(t, "s0", s0.got(), "updated a@2", "updated a@3", "deleted a@6")
		equal(t, "s1", s1.got(), "added a@1", "updated a@2", "updated a@3", "deleted a@6")
		equal(t, "dead letters", b.letters.got(), "bad@5 ")
		if attempts != 2 {
			t.Errorf("%d attempts after the restart, want 2 more", attempts)
		}
		b.dirty("delivered", "-4", "-7", "-8", "-9", "-10")
		b.balanced("route0")
	})
}

// TestRestoreFromAFile: a hand-over survives the state file.
func TestRestoreFromAFile(t *testing.T) {
	db, err := checkpoint.Open(checkpoint.Config{Path: filepath.Join(t.TempDir(), "state.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	wanted := func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name != "b", nil }
	r := spec.Settings{Sinks: to(&recordingSink{}, &recordingSink{}), Ready: make(chan struct{}), Filter: filters.Func(wanted)}
	b := openAs(t, pipeline.Config{Store: fakeStore{}}, r)
	// One that has passed, and two whose filter was not evaluated.
	if err := b.Restore("route0", []checkpoint.Pending{{ID: 7, Delta: delta(t, event.Added, "b", 0, 1)}}, checkpoint.Backlog{}); err != nil {
		t.Fatal(err)
	}
	b.admit(delta(t, event.Added, "a", 0, 2), delta(t, event.Updated, "b", 1, 3))
	cuts := b.Dirty()
	cuts[0].Put = append(cuts[0].Put, checkpoint.Pending{ID: 7, Delta: delta(t, event.Added, "b", 0, 1), Closed: []string{"s1"}, Attempts: 2})
	if err := db.Write(checkpoint.Cut{Routes: cuts}); err != nil {
		t.Fatal(err)
	}
	pending, err := db.LoadRoute("route0", checkpoint.Part{}, func(string) *event.Resource { return pods })
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "in the file", written([]checkpoint.RouteCut{{Put: pending}}), "7 added b@1 s1 #2", "8 added a@2 unseen", "9 updated b@3 unseen")
	s0, s1 := &recordingSink{}, &recordingSink{}
	r.Sinks, r.Ready = to(s0, s1), nil
	b = restart(t, r, pending...)
	b.drain()
	got := s0.got()
	slices.Sort(got)
	equal(t, "s0", got, "added a@2", "added b@1")
	equal(t, "s1", s1.got(), "added a@2")
	if err := db.Write(checkpoint.Cut{Routes: b.Dirty()}); err != nil {
		t.Fatal(err)
	}
	if pending, err := db.LoadRoute("route0", checkpoint.Part{}, func(string) *event.Resource { return pods }); err != nil || len(pending) > 0 {
		t.Errorf("%d pending in the end, %v", len(pending), err)
	}
}

// TestRestoredIsNeverFolded: a restored delta may have been attempted, so it is neither coalesced
// nor dropped by the overflow policy, before the route is ready and after.
func TestRestoredIsNeverFolded(t *testing.T) {
	for name, r := range map[string]spec.Settings{
		"latest":     {Deliver: spec.Latest},
		"fold":       {Capacity: 1},
		"dropOldest": {Capacity: 3, Overflow: spec.DropOldest},
		"block":      {Capacity: 9, Overflow: spec.Block},
	} {
		for _, unready := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " unready ", unready), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, open := blockingSink()
					r.Sinks, r.Batch = to(s), spec.Batch{Size: 1}
					ready := make(chan struct{})
					if r.Ready = nil; unready {
						r.Ready = ready
					}
					b := restart(t, r,
						checkpoint.Pending{ID: 1, Delta: delta(t, event.Added, "a", 0, 1)},
						// never evaluated
						checkpoint.Pending{ID: 2, Delta: delta(t, event.Updated, "a", 1, 2), Closed: []string{""}},
						checkpoint.Pending{ID: 3, Delta: delta(t, event.Updated, "a", 2, 3)})
					synctest.Wait()
					b.admit(delta(t, event.Updated, "a", 3, 4), delta(t, event.Deleted, "a", 5, 0))
					if !unready {
						b.balanced("route0")
					}
					close(ready)
					synctest.Wait()
					b.balanced("route0")
					open()
					b.drain()
					want := []string{"added a@1", "updated a@2", "updated a@3"}
					switch name {
					case "dropOldest": // new deltas were dropped at once
					case "block":
						want = append(want, "updated a@4", "deleted a@5")
					default:
						want = append(want, "deleted a@5")
					}
					equal(t, "sink", s.got(), want...)
					b.balanced("route0")
				})
			})
		}
	}
}

// TestRestoredFilter: a delta that had passed the filter is delivered, whatever the looked-up
// objects are now; a delta whose filter was not evaluated, or failed, is evaluated again.
func TestRestoredFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &recordingSink{refuse: func(event.Event) error { return errDown }}
		said := map[string]error{"bad": errDown}
		wanted := true
		ready := make(chan struct{})
		r := spec.Settings{
			Ready: ready, Sinks: to(down), OnFailure: spec.Pause, Batch: spec.Batch{Size: 1},
			Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return wanted, said[d.Key().Name] }),
		}
		saved := fakeStore{}
		b := startDurable(t, r)
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "bad", 0, 2))
		saved.write(t, b.Dirty())
		equal(t, "not ready", storedDeltas(saved), "1 added a@1 unseen", "2 added bad@2 unseen")
		close(ready)
		pass(time.Second)
		b.dirty("the filter was evaluated", "1 added a@1")
		b.admit(delta(t, event.Added, "bad", 0, 3), delta(t, event.Added, "c", 0, 4))
		b.dirty("and fails", "3 added bad@3 unseen", "4 added c@4")
		if b.Status()[0].Paused == "" {
			t.Error("not paused")
		}

		said, wanted = nil, false // the cause is fixed; and the looked-up objects have changed
		up := &recordingSink{}
		r.Sinks = to(up)
		b = restart(t, r,
			checkpoint.Pending{ID: 1, Delta: delta(t, event.Added, "a", 0, 1)},
			checkpoint.Pending{ID: 2, Delta: delta(t, event.Added, "bad", 0, 2), Closed: []string{""}},
			checkpoint.Pending{ID: 4, Delta: delta(t, event.Added, "c", 0, 4)})
		b.drain()
		equal(t, "sink", up.got(), "added a@1", "added c@4")
		b.dirty("at last", "-1", "-2", "-4")
		b.balanced("route0")
	})
}

// TestRestoredPauseTriesAgain: a paused route keeps its backlog, and retries after a restart, at
// least once.
func TestRestoredPauseTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		s := &recordingSink{}
		r := spec.Settings{Sinks: to(s), OnFailure: spec.Pause, Handler: handleEach(func(d *event.Delta) plugins.Result {
			if d.Key().Name == "bad" && !mended.Load() {
				return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errDown)}
			}
			return ok(d)
		})}
		saved := fakeStore{}
		b := startDurable(t, r)
		for range 3 {
			b.admit(delta(t, event.Added, "bad", 0, 1), delta(t, event.Added, "b", 0, 2))
			pass(time.Second)
			if b.Status()[0].Paused == "" {
				t.Fatal("not paused")
			}
			saved.write(t, b.Dirty())
			b = restart(t, r, saved.pending("route0")...)
		}
		mended.Store(true)
		b = restart(t, r, saved.pending("route0")...)
		b.drain()
		if got := s.got(); !slices.Contains(got, "added bad@1") || b.Pending("route0") > 0 {
			t.Errorf("got %q", got)
		}
		b.balanced("route0")
	})
}

// TestRestoredKeys: the key is evaluated again, and determines the lane; if it fails, a delta is
// ordered by its object.
func TestRestoredKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		held := true
		ready := make(chan struct{})
		r := spec.Settings{
			Sinks: to(s), Concurrency: 3, Batch: spec.Batch{Size: 1}, Ready: ready, Retry: spec.Retry{Attempts: 9},
			Key: func(_ context.Context, d *event.Delta) (string, error) {
				switch d.Key().Name {
				case "absent":
					return "", cel.ErrAbsent
				case "bad":
					return "", errors.New("no such overload")
				}
				return "k", nil
			},
			Handler: handleEach(func(d *event.Delta) plugins.Result {
				if d.Key().Name == "a" && held {
					return plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(errDown, time.Minute)}
				}
				return ok(d)
			}),
		}
		b := restart(t, r,
			checkpoint.Pending{ID: 1, Delta: delta(t, event.Added, "a", 0, 1)},
			checkpoint.Pending{ID: 2, Delta: delta(t, event.Added, "b", 0, 2)},
			checkpoint.Pending{ID: 3, Delta: delta(t, event.Added, "absent", 0, 3)},
			checkpoint.Pending{ID: 4, Delta: delta(t, event.Added, "bad", 0, 4)},
			checkpoint.Pending{ID: 5, Delta: delta(t, event.Updated, "bad", 4, 5)},
			checkpoint.Pending{ID: 6, Delta: delta(t, event.Updated, "bad", 5, 6), Closed: []string{""}})
		pass(time.Second)
		equal(t, "not ready", s.got())
		close(ready)
		b.admit(delta(t, event.Added, "c", 0, 7))
		pass(time.Second)
		got := s.got()
		slices.Sort(got)
		equal(t, "the first of the key is held", got, "added absent@3", "added bad@4", "updated bad@5")
		equal(t, "dead letters", b.letters.got(), "bad@6 ")
		held = false
		b.drain()
		equal(t, "after", s.got()[3:], "added a@1", "added b@2", "added c@7")
		b.balanced("route0")
	})
}

// TestDurable: an object whose identity is not on disk is not delivered, and other objects do not
// wait for it.
func TestDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s0, s1 := &recordingSink{}, &recordingSink{}
		handled := map[string]int{}
		h := handleEach(func(d *event.Delta) plugins.Result { handled[d.Key().Name]++; return ok(d) })
		b := startDurable(t, spec.Settings{Sinks: to(s0), Handler: h},
			spec.Settings{Sinks: to(nil, s1)[1:], Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return transit.Of(d).Durable == nil, nil })})
		written, never := make(chan struct{}), make(chan struct{})
		d0, d1, d2 := delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2), delta(t, event.Updated, "a", 1, 3)
		transit.Of(d0).Durable, transit.Of(d2).Durable = written, written
		b.admit(d0, d1, d2)
		pass(time.Minute)
		equal(t, "meanwhile", s0.got(), "added b@2")
		if handled["a"] > 0 {
			t.Error("the handler saw what is not on disk")
		}
		equal(t, "the other route", s1.got(), "added b@2")
		close(written)
		pass(time.Second)
		equal(t, "on disk", s0.got(), "added b@2", "added a@1", "updated a@3")

		full := delta(t, event.Added, "c", 0, 4)
		transit.Of(full).Durable = never
		b.admit(full, delta(t, event.Updated, "a", 3, 5))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := b.Drain(ctx); err == nil || !strings.Contains(err.Error(), `route "route0" 1`) {
			t.Errorf("got %v", err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "in the end", s0.got(), "added b@2", "added a@1", "updated a@3", "updated a@5")
		b.dirty("after Close", "4 added c@4")
		b.balanced("route0")
		if n := b.value("route_errors_total", "route0") + b.value("route_deltas_total", "route0", metrics.DeadLettered); n > 0 {
			t.Errorf("%v errors", n)
		}
	})
}

// TestDurableInALane: a delta that shares a lane with one that may be delivered waits for the
// identity of its own object.
func TestDurableInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, written := &recordingSink{}, make(chan struct{})
		b := startDurable(t, spec.Settings{Sinks: to(s), Key: func(context.Context, *event.Delta) (string, error) { return "one", nil }})
		first, second := delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2)
		transit.Of(second).Durable = written
		b.admit(first, second, delta(t, event.Updated, "a", 1, 3))
		pass(time.Minute)
		equal(t, "meanwhile", s.got(), "added a@1")
		close(written)
		pass(time.Second)
		equal(t, "then", s.got(), "added a@1", "added b@2", "updated a@3")
	})
}
