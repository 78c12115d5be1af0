package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// spent returns an owner whose allowance is used up for almost a second.
func spent() *allowance.Owner {
	owner := allowance.New(timer.Real()).Of("team")
	owner.Charge(2 * allowance.PerSecond)
	return owner
}

// TestDeferred: beyond the allowance of its owner, the worker of a route evaluates its filter. The
// source does not wait for it, the deltas keep their order, and the status says so for a minute.
func TestDeferred(t *testing.T) {
	// Guarantee: filter-cpu
	synctest.Test(t, func(t *testing.T) {
		s, open := &recordingSink{}, make(chan struct{})
		slow := filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
			<-open
			return d.Key().Name != "b", nil
		})
		b := start(t, spec.Settings{Name: "team/r", Sinks: to(s), Filter: slow, Allowance: spent()})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2), delta(t, event.Updated, "a", 1, 3)) // returns at once
		if !b.statusOf("team/r").Deferred {
			t.Error("the status does not tell")
		}
		close(open)
		synctest.Wait()
		pass(2 * time.Second)
		b.admit(delta(t, event.Updated, "a", 3, 4)) // the allowance has returned
		b.drain()
		equal(t, "sink", s.got(), "added a@1", "updated a@3", "updated a@4")
		if n := b.value("route_errors_total", "team/r", "deferred"); n != 3 {
			t.Errorf("%v filters were deferred", n)
		}
		b.balanced("team/r")
		if pass(time.Hour); b.statusOf("team/r").Deferred {
			t.Error("the status tells for ever")
		}
	})
}

// TestDeferredTurn: the workers of the routes of an owner evaluate deferred filters one at a time.
func TestDeferredTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, evaluating, next := spent(), make(chan string, 2), make(chan struct{})
		route := func(name string) spec.Settings {
			return spec.Settings{Name: name, Sinks: to(&recordingSink{}), Allowance: owner, Filter: filters.Func(func(context.Context, *event.Delta) (bool, error) {
				evaluating <- name
				<-next
				return true, nil
			})}
		}
		b := start(t, route("team/a"), route("team/b"))
		b.admit(delta(t, event.Added, "a", 0, 1))
		for range 2 {
			synctest.Wait()
			if n := len(evaluating); n != 1 {
				t.Errorf("%d filters are evaluated at once", n)
			}
			<-evaluating
			next <- struct{}{}
		}
		b.drain()
	})
}

// TestDeferredFasterThanEvaluated: a route delivers although more filters are deferred than its
// worker can evaluate.
func TestDeferredFasterThanEvaluated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		var b *harness
		n := 0
		b = start(t, spec.Settings{Name: "team/r", Sinks: to(s), Allowance: spent(), Filter: filters.Func(func(context.Context, *event.Delta) (bool, error) {
			if n++; len(s.got()) == 0 && n < 10_000 {
				b.admit(delta(t, event.Added, fmt.Sprint("o", n), 0, n+1))
			}
			return true, nil
		})})
		b.admit(delta(t, event.Added, "o", 0, 1))
		if synctest.Wait(); n == 10_000 {
			t.Error("nothing was delivered while filters were deferred")
		}
	})
}

// TestMissed: beyond the allowance of its owner, a condition is evaluated later for the newest
// state of each missed object, also after a crash. Until then its timer does not fire.
func TestMissed(t *testing.T) {
	// Guarantee: filter-cpu
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		owner := allowance.New(timer.Real()).Of("team")
		route := spec.Settings{Name: "r", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Allowance: owner, When: spec.When{
			Filter: whenOn, Version: "1", For: time.Minute, Resource: resourceOf, Object: fakeCache(conditionObject(t, "a", "uid-a", 3, true)),
		}}
		syncTo := func(b *harness, of *event.Delta) {
			t.Helper()
			of.Op = event.Sync
			commit, err := b.AdmitTo(t.Context(), "r", of)
			if err != nil || commit == nil {
				t.Fatal(commit, err)
			}
			commit.Commit()
		}
		runOnce(t, d, route, func(b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true))
			owner.Charge(2 * allowance.PerSecond)
			b.admit(conditionDelta(t, event.Updated, "a", 2, false), conditionDelta(t, event.Added, "b", 3, true))
			misses := b.Misses("r")
			<-misses.Woken()
			pass(2 * time.Minute) // the timer of a expires
			misses.Caught()
			expectData(t, s)

			// a holds still, but its time began anew
			syncTo(b, conditionDelta(t, event.Sync, "a", 2, false))
			syncTo(b, conditionDelta(t, event.Sync, "b", 3, true))
			if missed, ok := misses.Next(); ok {
				t.Errorf("%v is missed", missed)
			}
			misses.Caught()
			d.cut(b)
			pass(time.Minute)
			d.cut(b)
			pass(time.Second)
			expectData(t, s, "entered b@3")

			// missed again, evaluated, and missed again before Done: it stays missed
			owner.Charge(2 * allowance.PerSecond)
			b.admit(conditionDelta(t, event.Updated, "a", 4, true))
			first, _ := misses.Next()
			b.admit(conditionDelta(t, event.Updated, "a", 5, false))
			if !misses.Done(first) {
				t.Error("the route is not ready")
			}
			if second, ok := misses.Next(); !ok || second == first {
				t.Errorf("%v after %v", second, first)
			}
			d.cut(b)
		})
		runOnce(t, d, route, func(b *harness) {
			if !b.NeedsRescan("r") {
				t.Error("the missed object is forgotten in a crash")
			}
			rescanAll(t, b, true, conditionDelta(t, event.Sync, "a", 5, false), conditionDelta(t, event.Sync, "b", 3, true))
			d.cut(b)
		})
		runOnce(t, d, route, func(b *harness) {
			if b.NeedsRescan("r") {
				t.Error("it needs another look")
			}
		})
	})
}

// TestMissedTooMany: beyond a number of missed objects all are evaluated again, and a miss during
// that is not lost.
func TestMissedTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Name: "r", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Allowance: spent(), When: spec.When{
			Filter: whenOn, Version: "1", Resource: resourceOf, Object: fakeCache(),
		}})
		for i := range 1001 {
			b.admit(conditionDelta(t, event.Added, fmt.Sprint("o", i), i+1, false))
		}
		if !b.NeedsRescan("r") {
			t.Fatal("it needs no look")
		}
		rescan, err := b.Rescan("r")
		if err != nil {
			t.Fatal(err)
		}
		b.admit(conditionDelta(t, event.Added, "one more", 20_000, true))
		rescan.End(func(string) bool { return true })
		if !b.NeedsRescan("r") {
			t.Error("the object that was missed during the rescan is forgotten")
		}
		rescanAll(t, b, true, conditionDelta(t, event.Sync, "one more", 20_000, true))
		if b.NeedsRescan("r") {
			t.Error("it needs another look")
		}
		b.drain()
		expectData(t, s, "entered one more@20000")
	})
}
