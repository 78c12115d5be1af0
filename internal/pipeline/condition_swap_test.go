package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestConditionSwap: routes are exchanged at the moment at which many conditions are due. All of
// them are reported, or counted as suppressed, once.
func TestConditionSwap(t *testing.T) {
	// Guarantee: conditions-alternate
	const n = 300
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := &recordingSink{}
			route := func() spec.Settings {
				return spec.Settings{
					Name: "r", Sources: []string{"pods"}, Ops: edges, Sinks: to(s), When: spec.When{Filter: whenOn, Version: "1", For: time.Minute}, Existing: true,
					Batch: spec.Batch{Size: n},
					Limit: spec.Limit{Every: time.Hour, Burst: n / 2, Key: func(context.Context, *event.Delta) (string, error) { return "", nil }},
				}
			}
			b := start(t, route())
			for i := range n {
				b.admit(conditionDelta(t, event.Added, fmt.Sprint("l", i), i+1, true))
			}
			change, err := b.Prepare([]spec.Settings{route()})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			change.Swap()
			change.Finish(t.Context())
			pass(time.Second)
			if reported, suppressed := len(s.got()), b.value("route_deltas_total", "r", "suppressed"); reported != n/2 || suppressed != n/2 {
				t.Errorf("%d were reported, %v suppressed, want %d each", reported, suppressed, n/2)
			}
		})
	}
}

// TestSwapWhileDueIsKeyed: the timer of a condition or of a delete hold expires, and while its key
// is evaluated a reload exchanges the configuration. The failing key of the old configuration does
// not count: the report has the key of the new one, and is no dead letter.
func TestSwapWhileDueIsKeyed(t *testing.T) {
	tests := map[string]struct {
		ops   []event.Op
		when  spec.When
		gone  time.Duration
		delta func(testing.TB) *event.Delta
		want  string
	}{
		"condition": {ops: edges, when: spec.When{Filter: whenOn, Version: "1", For: time.Minute}, delta: func(t testing.TB) *event.Delta {
			return conditionDelta(t, event.Added, "a", 1, true)
		}, want: "entered a@1"},
		"delete hold": {ops: []event.Op{event.Deleted}, gone: time.Minute, delta: func(t testing.TB) *event.Delta {
			return conditionDelta(t, event.Deleted, "a", 1, true)
		}, want: "deleted a@1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, evaluating, swapped := &recordingSink{}, make(chan struct{}), make(chan struct{})
				first, second := routeOf("r", "1", s), routeOf("r", "2", s)
				for _, r := range []*spec.Settings{&first, &second} {
					r.Ops, r.When, r.Hold = test.ops, test.when, test.gone
				}
				begin := time.Now()
				first.Key = func(context.Context, *event.Delta) (string, error) {
					if time.Since(begin) < time.Minute {
						return "", nil
					}
					close(evaluating)
					<-swapped
					return "", errBad
				}
				b := start(t, first)
				b.admit(test.delta(t))
				<-evaluating
				b.exchange(nil, second)
				pass(time.Second) // the new configuration has evaluated the pending deltas
				close(swapped)
				pass(time.Second)
				equal(t, "reported", s.got(), test.want)
				equal(t, "dead letters", b.letters.got())
			})
		})
	}
}

// TestConditionRemoved: timers of a removed route cause no reports, once its state is on disk, if
// there is one.
func TestConditionRemoved(t *testing.T) {
	for _, store := range []pipeline.Store{nil, &flakyStore{fakeStore: fakeStore{}}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			counted := func(_ context.Context, d *event.Delta) (string, error) {
				if d.Op == event.Entered || d.Op == event.Deleted && d.Old.ResourceVersion() == "2" {
					calls++
				}
				return d.Key().Name, nil
			}
			r := spec.Settings{Sources: []string{"pods"}, Key: counted, Sinks: to(&recordingSink{}), Batch: spec.Batch{Size: 1}}
			level, gone := r, r
			level.Name, level.Ops, level.Existing, level.When = "level", edges, true, spec.When{Filter: whenOn, Version: "1", Every: time.Minute}
			gone.Name, gone.Ops, gone.Hold = "gone", []event.Op{event.Deleted}, time.Hour
			b := openAs(t, pipeline.Config{Store: store}, level, gone)
			b.Start(t.Context())
			b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Deleted, "b", 2, true))
			pass(90 * time.Second)
			if calls < 2 {
				t.Errorf("%d calls", calls)
			}
			change, err := b.Prepare(nil)
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			change.Finish(t.Context())
			if d, ok := store.(*flakyStore); ok {
				d.cut(b)
				if n := len(d.rules["level"]) + len(d.rules["gone"]); n != 3 {
					t.Errorf("%d records are on disk, want what is known of an object each, and of the condition", n)
				}
			}
			before := calls
			pass(24 * time.Hour)
			if calls != before {
				t.Errorf("%d calls more", calls-before)
			}
			if cuts := b.Dirty(); len(cuts) != 0 {
				t.Errorf("%+v is handed over", cuts)
			}
		})
	}
}

// TestLimitQuietReload: pending deltas of a route with a limit are processed by the new
// configuration after an exchange.
func TestLimitQuietReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		route := func(every time.Duration) spec.Settings {
			return spec.Settings{
				Name: "r", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(s), Debounce: spec.Debounce{Quiet: 5 * time.Second},
				Limit: spec.Limit{Every: every, Key: initials}, Batch: spec.Batch{Size: 1},
			}
		}
		b := start(t, route(time.Hour))
		b.admit(delta(t, event.Added, "a1", 0, 1))
		pass(time.Minute)
		b.admit(delta(t, event.Added, "a2", 0, 2), delta(t, event.Added, "b1", 0, 3))
		change, err := b.Prepare([]spec.Settings{route(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		pass(10 * time.Second)
		equal(t, "between", s.got(), "added a1@1", "added b1@3")
		change.Finish(t.Context())
		pass(time.Minute)
		b.admit(delta(t, event.Added, "a3", 0, 4))
		pass(time.Minute)
		if n := b.value("route_deltas_total", "r", "suppressed"); n > 1 {
			t.Errorf("%v were suppressed", n)
		}
		if got := s.got(); !slices.Contains(got, "added b1@3") || !slices.Contains(got, "added a3@4") {
			t.Errorf("reported %q", got)
		}
		b.balanced("r")
	})
}
