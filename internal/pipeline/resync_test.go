package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestAdmitTo: a delta that is admitted to one route reaches only that route, regardless of its
// ops, if its filter matches.
func TestAdmitTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := &recordingSink{}, &recordingSink{}
		ready := make(chan struct{})
		r, o := routeOf("one", "1", one), routeOf("other", "1", other)
		r.Ops, r.Ready, o.Sinks[0].Name = []event.Op{event.Added}, ready, "other"
		r.Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Key().Name != "filtered", nil })
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, r, o)
		b.Start(t.Context())
		put := func(name string) {
			commit, err := b.AdmitTo(t.Context(), "one", delta(t, event.Sync, name, 0, 1))
			if err != nil {
				t.Fatal(err)
			}
			if commit != nil {
				commit.Commit()
			}
		}
		put("early")
		put("filtered") // the filter is not evaluated yet
		if n := b.Pending("one"); n != 2 {
			t.Errorf("%d pending, want both", n)
		}
		close(ready)
		pass(time.Second)
		put("late")
		put("filtered")
		pass(time.Second)
		if got := one.got(); !slices.Equal(got, []string{"sync early@1", "sync late@1"}) {
			t.Errorf("got %q", got)
		}
		if got := other.got(); len(got) > 0 {
			t.Errorf("another route got %q", got)
		}
		if _, err := b.AdmitTo(t.Context(), "none", delta(t, event.Sync, "a", 0, 1)); !errors.Is(err, pipeline.ErrNoRoute) {
			t.Errorf("error is %v", err)
		}
		if !b.Takes("pods", event.Sync, false) || b.Takes("pods", event.Sync, true) || b.Takes("none", event.Sync, false) {
			t.Error("a route with sync is not found, or one without")
		}
		if b.SourcesOf("none") != nil || !slices.Equal(b.SourcesOf("one"), []string{"pods"}) {
			t.Error("other sources than the route has")
		}
		b.drain()
		if _, err := b.AdmitTo(t.Context(), "one", delta(t, event.Sync, "a", 0, 1)); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("error is %v", err)
		}
	})
}

// TestAwaitRoom: resynced deltas wait while a route is at least half full, and continue when it is
// less, regardless of its overflow.
func TestAwaitRoom(t *testing.T) {
	// Guarantee: watches
	for _, overflow := range []spec.Overflow{spec.Coalesce, spec.Block, spec.DropOldest} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			held := handleEach(func(d *event.Delta) plugins.Result { <-release; return ok(d) })
			r := routeOf("one", "1", &recordingSink{})
			r.Handler, r.Capacity, r.Overflow = held, 4, overflow
			b := start(t, r)
			await := func(ctx context.Context) chan error {
				done := make(chan error, 1)
				go func() { done <- b.AwaitRoom(ctx, "one") }()
				synctest.Wait()
				return done
			}
			for i, name := range []string{"a", "b", "c"} {
				if done := await(t.Context()); len(done) != 1 {
					t.Fatalf("it waits with %d of 4", i)
				}
				b.admit(delta(t, event.Added, name, 0, i+1))
			}
			ctx, cancel := context.WithCancel(t.Context())
			given, waits := await(ctx), await(t.Context())
			if len(given) > 0 || len(waits) > 0 {
				t.Fatal("it does not wait with 3 of 4")
			}
			cancel()
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			release <- struct{}{}
			synctest.Wait()
			if err := <-waits; err != nil {
				t.Error(err)
			}
			if err := b.AwaitRoom(t.Context(), "none"); !errors.Is(err, pipeline.ErrNoRoute) {
				t.Error(err)
			}
			close(release)
			b.admit(delta(t, event.Added, "d", 0, 9))
			b.drain()
		})
	}
}
