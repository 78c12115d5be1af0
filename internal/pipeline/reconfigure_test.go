package pipeline_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// routeOf returns a route that takes all deltas of pods.
func routeOf(name, version string, s *recordingSink) spec.Settings {
	return spec.Settings{
		Name: name, Version: version, Sources: []string{"pods"}, Ops: event.Ops(),
		Sinks: []spec.NamedSink{{Name: "s", Version: "1", Sink: s}}, Batch: spec.Batch{Size: 8},
	}
}

// exchange replaces the routes. existing are the objects of a source before.
func (b *harness) exchange(existing []*event.Delta, routes ...spec.Settings) {
	b.t.Helper()
	change, err := b.Prepare(routes)
	if err != nil {
		b.t.Fatal(err)
	}
	end := b.Yield()
	change.Swap()
	for _, d := range existing {
		if commit := change.Existing(b.t.Context(), d); commit != nil {
			commit.Commit()
		}
	}
	end()
	change.Finish(b.t.Context())
}

// TestChangedRoute: the backlog of a route passes to its successor, in order, and sinks that have a
// delta do not get it again.
func TestChangedRoute(t *testing.T) {
	// Guarantee: reload-backlog
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s, slow := &recordingSink{}, &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}
		first := routeOf("r", "1", s)
		first.Sinks = append(first.Sinks, spec.NamedSink{Name: "slow", Version: "1", Sink: slow})
		first.Retry = spec.Retry{Backoff: time.Second, Max: time.Second}
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, first)
		b.Start(t.Context())
		saved := fakeStore{}
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		pass(time.Millisecond)
		saved.write(t, b.Dirty())
		b.admit(delta(t, event.Updated, "a", 1, 3))
		pass(time.Millisecond)

		second := first
		second.Version = "2"
		second.Filter = filters.Func(func(context.Context, *event.Delta) (bool, error) { return false, nil })
		b.exchange(nil, second)
		b.admit(delta(t, event.Updated, "a", 3, 4)) // the new filter excludes it
		down.Store(false)
		pass(time.Minute)
		for name, sink := range map[string]*recordingSink{"s": s, "slow": slow} {
			got := sink.got()
			slices.Sort(got)
			if !slices.Equal(got, []string{"added a@1", "added b@2", "updated a@3"}) {
				t.Errorf("%s got %q", name, got)
			}
		}
		if a := only(slow.got(), "a@"); !slices.Equal(a, []string{"added a@1", "updated a@3"}) {
			t.Errorf("slow got %q", a)
		}
		b.balanced("r")
		b.dirty("all delivered, and two had been handed over", "-1", "-2")
	})
}

func only(all []string, part string) (some []string) {
	for _, s := range all {
		if strings.Contains(s, part) {
			some = append(some, s)
		}
	}
	return some
}

// TestExchangeWhileBusy: deltas that come during a batch of the old route wait for its end.
func TestExchangeWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{before: func(context.Context) { time.Sleep(10 * time.Second) }}
		b := start(t, routeOf("r", "1", s))
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Second)
		change, err := b.Prepare([]spec.Settings{routeOf("r", "2", s)})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		b.admit(delta(t, event.Updated, "a", 1, 2))
		change.Finish(t.Context())
		pass(time.Minute)
		if got := s.got(); !slices.Equal(got, []string{"added a@1", "updated a@2"}) {
			t.Errorf("got %q", got)
		}
		b.balanced("r")
	})
}

// TestRenamedRemovedAndNewRoutes: a renamed route keeps its backlog, that of a removed route is in
// the checkpoint, a new route gets existing objects if it wants them, and an unchanged one is not
// touched.
func TestRenamedRemovedAndNewRoutes(t *testing.T) {
	// Guarantee: reload-backlog
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		stays, old, removed := routeOf("stays", "1", s), routeOf("old", "1", s), routeOf("removed", "1", s)
		// their deltas stay pending until then
		old.Ready, removed.Ready = make(chan struct{}), make(chan struct{})
		saved := fakeStore{}
		b := openAs(t, pipeline.Config{Store: saved}, stays, old, removed)
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Millisecond)
		renamed, added := routeOf("new", "1", s), routeOf("added", "1", s)
		renamed.ID, added.Existing = "old", true
		initial := delta(t, event.Added, "a", 0, 1)
		initial.Initial = true
		b.exchange([]*event.Delta{initial}, renamed, stays, added)
		pass(time.Second)
		if got := s.got(); len(got) != 3 { // of stays, new and added
			t.Errorf("got %q", got)
		}
		for _, name := range []string{"stays", "new", "added"} {
			b.balanced(name)
		}
		if n := b.value("route_deltas_total", "old") + b.value("route_queue_deltas", "removed"); n != 0 {
			t.Error("what is gone has metrics still")
		}
		saved.write(t, b.Dirty())
		if len(saved.pending("removed")) != 1 || len(saved["old"])+len(saved["new"]) != 0 {
			t.Errorf("on disk is %v", saved)
		}

		// It returns, with a watch that is newer than the other routes.
		change, err := b.Prepare([]spec.Settings{stays, renamed, added, routeOf("removed", "1", s)})
		if err != nil {
			t.Fatal(err)
		}
		if got := change.New(); !slices.Equal(got, []string{"removed"}) {
			t.Errorf("new are %q", got)
		}
		if err := change.Restore("removed", saved.pending("removed"), checkpoint.Backlog{}); err != nil {
			t.Error(err)
		}
		change.Swap()
		change.Finish(t.Context())
		late := delta(t, event.Added, "late", 0, 9)
		late.Initial, transit.Of(late).Epoch = true, 2
		b.admit(late)
		pass(time.Second)
		if got := s.got()[3:]; !slices.Equal(got, []string{"added a@1"}) {
			t.Errorf("then got %q", got)
		}
	})
}

// TestYield: a delta that waits for room does not delay an exchange of the routes.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routeOf("r", "1", &recordingSink{refuse: func(event.Event) error { return errDown }})
		r.Capacity, r.Overflow = 1, spec.Block
		b := start(t, r)
		b.admit(delta(t, event.Added, "a", 0, 1))
		passed := make(chan struct{})
		go func() {
			defer close(passed)
			b.admit(delta(t, event.Added, "b", 0, 2))
		}()
		pass(time.Hour)
		select {
		case <-passed:
			t.Fatal("there was room")
		default:
		}
		end := b.Yield()
		<-passed
		end()
		if n := b.Pending("r"); n != 2 {
			t.Errorf("%d pending, want 2", n)
		}
	})
}

// boundedHandler is a handler with a timeout for its calls.
type boundedHandler struct {
	handlerFunc

	timeout time.Duration
}

func (h boundedHandler) Timeout() time.Duration { return h.timeout }

// TestChangedRouteOfABusyHandler: a reload waits for a handler with a timeout for one timeout,
// however many calls its batch would take. Its successor retries the deltas without counting an
// attempt.
func TestChangedRouteOfABusyHandler(t *testing.T) {
	// Guarantee: reload-host-function, reload-waits
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		first, second := routeOf("r", "1", s), routeOf("r", "2", s)
		first.Retry, second.Retry = spec.Retry{Attempts: 0}, spec.Retry{Attempts: 0}
		first.Handler = boundedHandler{func(ctx context.Context, _ []*event.Delta) ([]plugins.Result, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 3 * time.Second}
		second.Handler = handleEach(ok)
		b := start(t, first)
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		pass(time.Minute)
		began := time.Now()
		b.exchange(nil, second)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the reload took %v", took)
		}
		pass(time.Minute)
		equal(t, "delivered", s.got(), "added a@1", "added b@2")
		equal(t, "dead letters", b.letters.got())
		b.balanced("r")
	})
}
