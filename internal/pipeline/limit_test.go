package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// initials returns the first character of the name of an object as its key.
func initials(_ context.Context, d *event.Delta) (string, error) { return d.Key().Name[:1], nil }

// reported lists the events of a sink, with the suppressed counts.
func reported(t testing.TB, s *recordingSink) []string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, e := range s.events {
		var data struct {
			Suppressed int `json:"suppressed"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		text := strings.TrimPrefix(e.Subject, "default/") + "@" + e.K8sResourceVersion
		if data.Suppressed > 0 {
			text += fmt.Sprintf(" +%d", data.Suppressed)
		}
		list = append(list, text)
	}
	return list
}

// TestLimit: for each key no more than the limit allows is delivered, and the next event has the
// suppressed count. Objects without a key count by themselves; deltas with a failing key are not
// suppressed.
func TestLimit(t *testing.T) {
	// Guarantee: limit
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		key := func(ctx context.Context, d *event.Delta) (string, error) {
			switch name := d.Key().Name; name[:1] {
			case "x":
				return "", fmt.Errorf("%w: no key", cel.ErrAbsent)
			case "y":
				return "", errors.New("broken")
			}
			return initials(ctx, d)
		}
		b := start(t, spec.Settings{Sinks: to(s), Limit: spec.Limit{Key: key, Every: 10 * time.Minute, Burst: 2}})
		for i, name := range []string{"a1", "a2", "a3", "b1", "a1", "x1", "x1", "x2", "x1", "y1", "y1"} {
			b.admit(delta(t, event.Updated, name, 100+i, 101+i))
		}
		pass(time.Second)
		// Events of different objects have no order.
		equal(t, "at first", slices.Sorted(slices.Values(reported(t, s))), "a1@101", "a2@102", "b1@104", "x1@106", "x1@107", "x2@108")
		pass(10 * time.Minute)
		b.admit(delta(t, event.Updated, "a4", 200, 201), delta(t, event.Updated, "a4", 201, 202), delta(t, event.Updated, "b2", 200, 203))
		pass(time.Second)
		equal(t, "after ten minutes", slices.Sorted(slices.Values(reported(t, s)[6:])), "a4@201 +2", "b2@203")
		pass(time.Hour)
		b.admit(delta(t, event.Deleted, "a4", 300, 0), delta(t, event.Updated, "x1", 300, 301))
		pass(time.Second)
		equal(t, "after an hour", slices.Sorted(slices.Values(reported(t, s)[8:])), "a4@300 +1", "x1@301 +1")
		if n := b.value("route_deltas_total", "route0", metrics.Suppressed); n != 4 {
			t.Errorf("%v suppressed", n)
		}
		if n := len(b.letters.got()); n != 2 {
			t.Errorf("%d dead letters, want those without a key that can be evaluated", n)
		}
		b.balanced("route0")
	})
}

// TestLimitNotReady: deltas from before the route was ready count, too, in their order, once they
// have passed the filter.
func TestLimitNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready, s := make(chan struct{}), &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Ready: ready, Limit: spec.Limit{Key: initials, Every: time.Minute}})
		b.admit(delta(t, event.Added, "a1", 0, 1), delta(t, event.Added, "a2", 0, 2), delta(t, event.Added, "b1", 0, 3))
		pass(time.Hour)
		close(ready)
		pass(time.Second)
		b.admit(delta(t, event.Added, "a3", 0, 4))
		pass(time.Minute)
		b.admit(delta(t, event.Added, "a4", 0, 5))
		pass(time.Second)
		equal(t, "sink", reported(t, s), "a1@1", "b1@3", "a4@5 +2")
		b.balanced("route0")
	})
}

// TestLimitOfAChain: each route of a chain counts only what its own limit held back.
func TestLimitOfAChain(t *testing.T) {
	// Guarantee: limit
	synctest.Test(t, func(t *testing.T) {
		first, limited, plain := &recordingSink{}, &recordingSink{}, &recordingSink{}
		all := func(context.Context, *event.Delta) (string, error) { return "all", nil }
		count := handleEach(func(d *event.Delta) plugins.Result {
			return plugins.Result{Events: []plugins.Emit{{Data: fmt.Appendf(nil, `{"suppressed":%d}`, d.Suppressed)}}}
		})
		behind := func(name string, s *recordingSink, every time.Duration) spec.Settings {
			r := downstreamRoute(name, out("out of "+name, s))
			r.Handler, r.Limit = count, spec.Limit{Key: all, Every: every}
			return r
		}
		b := start(t, spec.Settings{
			Sinks: append(downstream("limited", "plain"), out("first", first)), Handler: count, Limit: spec.Limit{Key: all, Every: time.Minute},
		}, behind("limited", limited, 150*time.Second), behind("plain", plain, 0))
		for i := range 4 { // three at once, of which two are held back
			for j := range 3 {
				b.admit(delta(t, event.Updated, "a", 100+3*i+j, 101+3*i+j))
			}
			pass(time.Minute + time.Second)
		}
		equal(t, "first", reported(t, first), "a@101", "a@104 +2", "a@107 +2", "a@110 +2")
		equal(t, "behind it", reported(t, plain), "a@101", "a@104", "a@107", "a@110")
		equal(t, "behind it, with a limit", reported(t, limited), "a@101", "a@110 +2")
	})
}

// TestLimitRestart: a cut contains the pending deltas and the suppressed counts of one moment.
// After a crash the limit continues from there, by the wall clock; deltas that were suppressed
// since are suppressed again when they are repeated.
func TestLimitRestart(t *testing.T) {
	// Guarantee: limit-kept
	synctest.Test(t, func(t *testing.T) {
		k := &flakyStore{fakeStore: fakeStore{}}
		down := &recordingSink{refuse: func(event.Event) error { return errDown }}
		r := spec.Settings{Name: "r", Limit: spec.Limit{Key: initials, Every: time.Hour}, Retry: spec.Retry{Max: time.Minute}}
		r.Sinks = to(down)
		b := openAs(t, pipeline.Config{Store: k}, r)
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "a1", 0, 1), delta(t, event.Added, "a2", 0, 2), delta(t, event.Added, "b1", 0, 3))
		pass(time.Second)
		k.cut(b)
		// they are repeated because of the crash
		b.admit(delta(t, event.Added, "a3", 0, 4), delta(t, event.Added, "c1", 0, 5))
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		s := &recordingSink{}
		r.Sinks = to(s)
		b = openAs(t, pipeline.Config{Store: k}, r)
		k.restore(b, "r")
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "a3", 0, 4), delta(t, event.Added, "c1", 0, 5))
		pass(29 * time.Minute)
		b.admit(delta(t, event.Added, "a4", 0, 6))
		pass(2 * time.Minute)
		b.admit(delta(t, event.Added, "a5", 0, 7), delta(t, event.Added, "b2", 0, 8), delta(t, event.Added, "c2", 0, 9))
		pass(time.Second)
		equal(t, "sink", reported(t, s), "a1@1", "b1@3", "c1@5", "a5@7 +3", "b2@8")
		k.cut(b)
		if n := len(k.known("r")); n != 3 {
			t.Errorf("%d keys on disk", n)
		}
	})
}

// TestLimitReload: a changed or renamed route continues with its limit; a route whose limit was
// removed drops it.
func TestLimitReload(t *testing.T) {
	// Guarantee: reload-limit
	synctest.Test(t, func(t *testing.T) {
		k := &flakyStore{fakeStore: fakeStore{}}
		s := &recordingSink{}
		r := spec.Settings{
			Name: "r", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(s), Limit: spec.Limit{Key: initials, Every: time.Hour},
		}
		b := openAs(t, pipeline.Config{Store: k}, r)
		b.Start(t.Context())
		version := 0
		admit := func(name string) {
			version++
			b.admit(delta(t, event.Added, name, 0, version))
		}
		reload := func(r spec.Settings) {
			change, err := b.Prepare([]spec.Settings{r})
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			k.flush(b)
			change.Finish(t.Context())
			pass(time.Second)
			k.cut(b)
		}
		admit("a1")
		admit("a2")
		pass(time.Second)
		k.cut(b)
		reload(r)
		admit("a3")
		renamed := r
		renamed.Name, renamed.ID = "new", "r"
		reload(renamed)
		admit("a4")
		admit("b1")
		k.cut(b)
		if n := len(k.known("r")); n != 2 {
			t.Errorf("%d keys on disk", n)
		}
		pass(time.Hour)
		admit("a5")
		pass(time.Second)
		equal(t, "sink", reported(t, s), "a1@1", "b1@5", "a5@6 +3")
		renamed.Limit = spec.Limit{}
		reload(renamed)
		admit("a6")
		admit("a7")
		pass(time.Second)
		equal(t, "without a limit", reported(t, s)[3:], "a6@7", "a7@8")
		if n := len(k.known("r")); n != 0 {
			t.Errorf("%d keys on disk of a limit that is not there any more", n)
		}
	})
}

// TestLimitFolded: a delta with a suppressed count is not coalesced into nothing, and counts are
// added up.
func TestLimitFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		s := &recordingSink{before: func(context.Context) { <-stuck }}
		b := start(t, spec.Settings{
			Sinks: to(s), Deliver: spec.Latest, Batch: spec.Batch{Size: 1},
			Limit: spec.Limit{Key: initials, Every: time.Minute},
		})
		b.admit(delta(t, event.Added, "z", 0, 1)) // keeps the worker busy
		pass(time.Second)
		for i, step := range []struct {
			op   event.Op
			wait time.Duration
		}{{event.Updated, 0}, {event.Updated, time.Minute}, {event.Updated, 0}, {event.Updated, time.Minute}} {
			time.Sleep(step.wait)
			b.admit(delta(t, step.op, "a", 10+i, 11+i))
		}
		b.admit(delta(t, event.Updated, "b", 1, 2), delta(t, event.Updated, "b", 2, 3))
		time.Sleep(time.Minute)
		b.admit(deltaOf(t, event.Added, "b1", "one", 0, 30))
		time.Sleep(time.Minute)
		b.admit(deltaOf(t, event.Deleted, "b1", "one", 30, 0))
		close(stuck)
		pass(time.Second)
		equal(t, "sink", reported(t, s), "z@1", "a@14 +1", "b@2", "b1@30 +1", "b1@30")
		b.balanced("route0")
	})
}

// TestLimitEdges: of a condition the limit counts Entered, at once even if the route has a window.
// A suppressed Entered is reported when the limit allows it, and Left when the condition holds for
// no object of the key.
func TestLimitEdges(t *testing.T) {
	// Guarantee: limit-of-conditions
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		r := groups(&timedSink{}, nil)
		r.Sinks, r.Ops, r.Existing, r.When = to(s), edges, true, spec.When{Filter: whenOn, Version: "1"}
		r.Limit = spec.Limit{Key: initials, Every: time.Hour}
		b := start(t, r)
		b.admit(conditionDelta(t, event.Added, "a1", 1, true), conditionDelta(t, event.Added, "a2", 2, true), conditionDelta(t, event.Added, "a3", 3, true))
		b.admit(conditionDelta(t, event.Updated, "a1", 4, false), conditionDelta(t, event.Updated, "a3", 5, false))
		if n := b.Pending("r"); n != 1 {
			t.Errorf("%d are pending, want that it holds for the first", n)
		}
		pass(2 * time.Hour)
		b.admit(conditionDelta(t, event.Deleted, "a2", 2, true))
		pass(time.Hour)
		subjects := []string{}
		for _, e := range s.events {
			subjects = append(subjects, e.Subject)
		}
		equal(t, "sink", subjects, "a1+0", "a2+1", "a2+0")
		b.balanced("r")
	})
}
