package pipeline_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// TestNarrowedScope: a route that does not see its objects any more delivers no pending delta of
// them.
func TestNarrowedScope(t *testing.T) {
	// Guarantee: include-scope
	for _, c := range []struct {
		scope *filters.Scope
		want  []string
	}{
		{&filters.Scope{Namespaces: []string{"elsewhere"}}, nil},
		{&filters.Scope{Namespaces: []string{"default", "ns"}}, []string{"added a@1", "added b@2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			s := &recordingSink{refuse: func(event.Event) error {
				if down.Load() {
					return errDown
				}
				return nil
			}}
			first := routeOf("r", "1", s)
			first.Retry = spec.Retry{Backoff: time.Second, Max: time.Second}
			b := openAs(t, pipeline.Config{}, first)
			b.Start(t.Context())
			b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
			pass(time.Millisecond)
			second := first
			second.Version, second.Scope = "2", c.scope
			b.exchange(nil, second)
			down.Store(false)
			pass(time.Minute)
			got := s.got()
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("with %q the sink got %q, want %q", c.scope.Namespaces, got, c.want)
			}
			b.balanced("r")
		})
	}
}

// TestNarrowedScopeOfACondition: a condition that holds for an object which the route does not see
// any more ends.
func TestNarrowedScopeOfACondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		first := routeOf("r", "1", s)
		first.Ops, first.Existing = edges, true
		first.When = spec.When{Filter: whenOn, Version: "1", Every: time.Minute}
		b := start(t, first)
		d := conditionDelta(t, event.Added, "a", 1, true)
		b.admit(d)
		pass(time.Second)
		second := first
		second.Version, second.When.Version, second.Scope = "2", "2", &filters.Scope{Namespaces: []string{"elsewhere"}}
		b.exchange(nil, second)
		pass(2 * time.Minute) // no reminder
		rescan, err := b.Rescan("r")
		if err != nil {
			t.Fatal(err)
		}
		again := *d
		again.Op = event.Sync
		if a, err := rescan.Admit(t.Context(), &again); err != nil || a == nil {
			t.Fatal(a, err)
		} else {
			a.Commit()
		}
		rescan.End(func(string) bool { return true })
		pass(time.Second)
		if got := s.got(); !slices.Equal(got, []string{"entered a@1", "left a@1"}) {
			t.Errorf("the sink got %q", got)
		}
	})
}

// TestNarrowedScopeOfAChain: a route behind a route with a condition delivers no report of an
// object which it does not see any more: the end of the condition is not one of its own.
func TestNarrowedScopeOfAChain(t *testing.T) {
	// Guarantee: include-scope
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}
		up := spec.Settings{
			Name: "up", Version: "1", Sources: []string{"pods"}, Ops: edges, Existing: true, Sinks: downstream("last"),
			When: spec.When{Filter: whenOn, Version: "1"},
		}
		last := downstreamRoute("last", to(s)...)
		last.Version, last.Retry = "1", spec.Retry{Backoff: time.Second, Max: time.Second}
		b := openAs(t, pipeline.Config{}, up, last)
		b.Start(t.Context())
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Deleted, "a", 1, true))
		pass(time.Second)
		last.Version, last.Scope = "2", &filters.Scope{Namespaces: []string{"elsewhere"}}
		b.exchange(nil, up, last)
		down.Store(false)
		pass(time.Minute)
		if got := s.got(); len(got) > 0 {
			t.Errorf("the sink got %q", got)
		}
	})
}
