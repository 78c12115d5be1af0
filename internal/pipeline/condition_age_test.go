package pipeline_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestTooOldDue: a report that came due while the router was down has the age of its due time, so
// that no alert is sent for yesterday. The age of an end counts from its observation, and a report
// that is due because of a reload is new.
func TestTooOldDue(t *testing.T) {
	// Guarantee: max-age
	for name, test := range map[string]struct {
		down     time.Duration
		reported []string
		letters  []string
	}{
		"in time":       {9 * time.Minute, []string{"entered a@1 late", "left a@5"}, nil},
		"too late":      {10 * time.Minute, []string{"left a@5"}, []string{"a@1 "}},
		"the next day":  {24 * time.Hour, []string{"left a@5"}, []string{"a@1 "}},
		"another month": {800 * time.Hour, []string{"left a@5"}, []string{"a@1 "}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
				r := spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), MaxAge: 10 * time.Minute, When: spec.When{
					Filter: whenOn, Version: "1", For: time.Minute, Resource: resourceOf, Object: fakeCache(conditionObject(t, "a", "uid-a", 1, true)),
				}}
				runOnce(t, d, r, func(b *harness) {
					b.admit(conditionDelta(t, event.Added, "a", 1, true))
					d.cut(b)
				})
				pass(test.down + time.Minute)
				runOnce(t, d, r, func(b *harness) {
					pass(time.Second)
					d.cut(b)
					pass(time.Second)
					b.admit(conditionDelta(t, event.Updated, "a", 5, false))
					d.cut(b)
					pass(time.Second)
					expectData(t, s, test.reported...)
					if got := b.letters.got(); !slices.Equal(got, test.letters) {
						t.Errorf("dead letters: %q, want %q", got, test.letters)
					}
					if n := b.value("route_errors_total", "max_age"); n != float64(len(test.letters)) {
						t.Errorf("%v are counted as too old", n)
					}
					b.balanced("r")
				})
			})
		})
	}
}

// The age of a late reminder counts from its due time: the next one is reported.
func TestTooOldReminder(t *testing.T) {
	// Guarantee: max-age
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		r := spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), MaxAge: 10 * time.Minute, When: spec.When{
			Filter: whenOn, Version: "1", Every: 20 * time.Minute, Resource: resourceOf, Object: fakeCache(conditionObject(t, "a", "uid-a", 1, true)),
		}}
		runOnce(t, d, r, func(b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true))
			d.cut(b)
			pass(time.Second)
			d.cut(b)
		})
		pass(time.Hour)
		runOnce(t, d, r, func(b *harness) {
			pass(time.Second)
			d.cut(b)
			pass(21 * time.Minute)
			expectData(t, s, "entered a@1", "entered a@1 repeat 2")
			if got := b.letters.got(); !slices.Equal(got, []string{"a@1 "}) {
				t.Errorf("dead letters: %q", got)
			}
		})
	})
}

// A shorter `for` makes a pending condition due now, not in the past.
func TestTooOldReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		route := func(length time.Duration) spec.Settings {
			return spec.Settings{
				Name: "r", Version: length.String(), Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), MaxAge: time.Minute,
				When: spec.When{Filter: whenOn, Version: "1", For: length},
			}
		}
		b := start(t, route(24*time.Hour))
		b.admit(conditionDelta(t, event.Added, "a", 1, true))
		pass(12 * time.Hour)
		change, err := b.Prepare([]spec.Settings{route(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		change.Finish(t.Context())
		pass(time.Second)
		expectData(t, s, "entered a@1")
	})
}

// A delete hold that expired while the router was down has the age of its due time; one that is due
// because of a reload is new.
func TestTooOldGone(t *testing.T) {
	// Guarantee: max-age
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(length time.Duration) spec.Settings {
			return spec.Settings{
				Name: "r", Version: length.String(), Sources: []string{"pods"}, Ops: []event.Op{event.Deleted}, Handler: describingHandler, Sinks: to(s), Hold: length,
				MaxAge: 10 * time.Minute, When: spec.When{Resource: resourceOf},
			}
		}
		runOnce(t, d, route(time.Hour), func(b *harness) {
			b.admit(conditionDelta(t, event.Deleted, "a", 1, true))
			pass(10 * time.Minute)
			b.admit(conditionDelta(t, event.Deleted, "b", 2, true))
			d.cut(b)
		})
		pass(time.Hour + 5*time.Minute)
		runOnce(t, d, route(time.Hour), func(b *harness) {
			pass(time.Second)
			expectData(t, s, "deleted b@2 late")
			if got := b.letters.got(); !slices.Equal(got, []string{"a@1 "}) {
				t.Errorf("dead letters: %q", got)
			}
			b.admit(conditionDelta(t, event.Deleted, "c", 3, true))
			pass(30 * time.Minute)
			change, err := b.Prepare([]spec.Settings{route(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			change.Finish(t.Context())
			pass(time.Second)
			expectData(t, s, "deleted b@2 late", "deleted c@3")
		})
	})
}
