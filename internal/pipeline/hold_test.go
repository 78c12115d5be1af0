package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestGone: a delete is reported after its hold, unless an object with its name or its key is
// created before, even across restarts.
func TestGone(t *testing.T) {
	// Guarantee: delete-holds
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		var there []*event.Object
		route := func(caughtUp chan struct{}) spec.Settings {
			return spec.Settings{
				Name: "r", Ops: []event.Op{event.Deleted}, Handler: describingHandler, Sinks: to(s), Hold: time.Hour,
				Key: func(_ context.Context, d *event.Delta) (string, error) {
					if name := d.Key().Name; len(name) > 1 {
						return name[:1], nil
					}
					return "", cel.ErrAbsent
				},
				When: spec.When{CaughtUp: caughtUp, Resource: resourceOf, Object: func(source string, key event.Key) *event.Object { return fakeCache(there...)(source, key) }},
			}
		}
		runOnce(t, d, route(nil), func(b *harness) {
			for i, name := range []string{"a", "b", "c", "d1", "e1", "f"} {
				b.admit(conditionDelta(t, event.Deleted, name, i+1, true))
			}
			pass(30 * time.Minute)
			back := conditionDelta(t, event.Added, "b", 10, true)
			back.New = conditionObject(t, "b", "another", 10, true)
			b.admit(back, conditionDelta(t, event.Added, "d2", 11, true), conditionDelta(t, event.Updated, "a", 12, true))
			d.cut(b)
		})
		caughtUp := make(chan struct{})
		pass(20 * time.Minute)
		runOnce(t, d, route(caughtUp), func(b *harness) {
			b.admit(conditionDelta(t, event.Added, "c", 13, true))
			// its creation is not observed, but it is in the cache
			there = append(there, conditionObject(t, "f", "uid-f", 14, true))
			pass(9 * time.Minute)
			close(caughtUp)
			pass(time.Minute + time.Second)
			got := s.data()
			slices.Sort(got)
			if !slices.Equal(got, []string{"deleted a@1", "deleted e1@5"}) {
				t.Errorf("reported %q", got)
			}
			d.cut(b)
		})
		if n := len(d.known("r")); n > 0 {
			t.Errorf("%d are known still", n)
		}
	})
}

// TestGoneLate: a hold that expired while the router was down is reported late, and only after all
// earlier changes were seen.
func TestGoneLate(t *testing.T) {
	// Guarantee: delete-holds
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		caughtUp := make(chan struct{})
		r := spec.Settings{Name: "r", Ops: []event.Op{event.Deleted}, Handler: describingHandler, Sinks: to(s), Hold: time.Hour, When: spec.When{Resource: resourceOf}}
		runOnce(t, d, r, func(b *harness) {
			b.admit(conditionDelta(t, event.Deleted, "a", 1, true), conditionDelta(t, event.Deleted, "b", 2, true))
			d.cut(b)
		})
		pass(2 * time.Hour)
		r.When.CaughtUp = caughtUp
		runOnce(t, d, r, func(b *harness) {
			pass(time.Minute)
			expectData(t, s)
			b.admit(conditionDelta(t, event.Added, "b", 3, true))
			close(caughtUp)
			pass(time.Second)
			expectData(t, s, "deleted a@1 late")
		})
	})
}

// TestGoneReload: a renamed route keeps its holds; without `for` they are dropped.
func TestGoneReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(name string, gone time.Duration) spec.Settings {
			return spec.Settings{
				Name: name, ID: "id", Sources: []string{"pods"}, Ops: []event.Op{event.Deleted}, Handler: describingHandler, Sinks: to(s), Hold: gone,
				When: spec.When{Resource: resourceOf, Object: fakeCache(conditionObject(t, "there", "uid-there", 9, true))},
			}
		}
		b := openAs(t, pipeline.Config{Store: d}, route("old", time.Hour))
		b.Start(t.Context())
		b.admit(conditionDelta(t, event.Deleted, "a", 1, true), conditionDelta(t, event.Deleted, "there", 2, true))
		d.cut(b)
		exchange := func(r spec.Settings) {
			c, err := b.Prepare([]spec.Settings{r})
			if err != nil {
				t.Fatal(err)
			}
			c.Swap()
			d.cut(b)
			c.Finish(t.Context())
			pass(time.Second)
			d.cut(b)
		}
		exchange(route("new", time.Hour))
		if n := len(d.known("id")); n != 2 {
			t.Errorf("%d are known", n)
		}
		pass(time.Hour)
		// the other object exists again, although its creation was not observed
		expectData(t, s, "deleted a@1")
		b.admit(conditionDelta(t, event.Deleted, "b", 3, true))
		d.cut(b)
		if n := len(d.known("id")); n != 1 {
			t.Errorf("%d are known", n)
		}
		exchange(route("new", 0))
		if n := len(d.known("id")); n != 0 {
			t.Errorf("%d are known of a route that waits for nothing", n)
		}
		pass(2 * time.Hour)
		expectData(t, s, "deleted a@1")
	})
}
