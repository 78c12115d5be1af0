package pipeline_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestActive: the objects for which a condition holds are listed page by page, each once and in
// order, with the next report.
func TestActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openAs(t, pipeline.Config{}, spec.Settings{
			Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(&recordingSink{}), Existing: true,
			When: spec.When{Filter: whenOn, Version: "1", For: time.Minute, Every: time.Hour},
		}, spec.Settings{Name: "plain", Handler: describingHandler, Sinks: to(&recordingSink{})})
		b.Start(t.Context())
		var want []string
		began := time.Now()
		for i := range 25 {
			name := fmt.Sprintf("l%02d", i*7%25)
			want = append(want, name)
			b.admit(conditionDelta(t, event.Added, name, i+1, true))
		}
		slices.Sort(want)
		b.admit(conditionDelta(t, event.Added, "dark", 100, false))
		for _, limit := range []int{1, 2, 3, 7, 24, 25, 26} {
			var got []string
			for after := (pipeline.Holding{}); ; {
				page, more, ok := b.Active("r", after, limit)
				if !ok || len(page) > limit || more && len(page) < limit {
					t.Fatalf("limit %d: %d, %t, %t", limit, len(page), more, ok)
				}
				for _, h := range page {
					got = append(got, h.Key.Name)
					if h.State != "pending" || !h.Since.Equal(began) || !h.Due.Equal(began.Add(time.Minute)) || h.UID != "uid-"+h.Key.Name {
						t.Errorf("got %+v", h)
					}
				}
				if !more {
					break
				}
				after = page[len(page)-1]
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d: got %q", limit, got)
			}
		}
		pass(time.Minute + time.Hour)
		page, _, _ := b.Active("r", pipeline.Holding{}, 1)
		if h := page[0]; h.State != "entered" || h.Repeat != 1 || !h.Due.Equal(began.Add(time.Minute+2*time.Hour)) {
			t.Errorf("got %+v", h)
		}
		for _, name := range []string{"plain", "none"} {
			if _, _, ok := b.Active(name, pipeline.Holding{}, 1); ok {
				t.Errorf("%s has a condition", name)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestActiveGone: a held delete is listed, too, until it is cancelled or reported.
func TestActiveGone(t *testing.T) {
	// Guarantee: delete-holds
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Name: "r", Ops: []event.Op{event.Deleted}, Handler: describingHandler, Sinks: to(s), Hold: time.Hour})
		began := time.Now()
		for i, name := range []string{"b", "c", "a"} {
			b.admit(conditionDelta(t, event.Deleted, name, i+1, true))
			pass(time.Minute)
		}
		b.admit(conditionDelta(t, event.Added, "c", 10, true))
		first, more, ok := b.Active("r", pipeline.Holding{}, 1)
		if !ok || !more || len(first) != 1 {
			t.Fatal(first, more, ok)
		}
		second, more, _ := b.Active("r", first[0], 1)
		if more || len(second) != 1 {
			t.Fatal(second, more)
		}
		for i, h := range append(first, second...) {
			since := began.Add([]time.Duration{2 * time.Minute, 0}[i])
			if name := []string{"a", "b"}[i]; h.Key.Name != name || h.UID != "uid-"+name || h.State != "gone" || !h.Since.Equal(since) || !h.Due.Equal(since.Add(time.Hour)) {
				t.Errorf("got %+v", h)
			}
		}
		pass(time.Hour)
		expectData(t, s, "deleted b@1", "deleted a@3")
		if page, _, ok := b.Active("r", pipeline.Holding{}, 10); !ok || len(page) > 0 {
			t.Errorf("got %+v, %t", page, ok)
		}
	})
}

// TestGauges: the metrics show the state of the rules of each route at each scrape, and have no
// series for a rule that was removed.
func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		level := spec.Settings{
			Name: "level", Version: "1", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(&recordingSink{}), Existing: true,
			When: spec.When{Filter: whenOn, Version: "1", For: time.Minute},
		}
		gone := spec.Settings{Name: "gone", Version: "1", Sources: []string{"pods"}, Ops: []event.Op{event.Deleted}, Handler: describingHandler, Sinks: to(&recordingSink{}), Hold: time.Minute}
		limited := spec.Settings{Name: "limited", Version: "1", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(&recordingSink{}), Limit: spec.Limit{Every: time.Hour}}
		b := start(t, level, gone, limited)
		expect := func(when string, want map[string]float64) {
			t.Helper()
			b.metrics.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			families, err := b.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "deltarouter_route_"), "_objects"); slices.Contains([]string{"pending", "active", "limit_keys"}, name) {
						got[m.GetLabel()[0].GetValue()+" "+name] = m.GetGauge().GetValue()
					}
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		exchange := func() {
			t.Helper()
			change, err := b.Prepare([]spec.Settings{level, gone, limited})
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			change.Finish(t.Context())
		}
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, true), conditionDelta(t, event.Deleted, "c", 3, true))
		expect("at first", map[string]float64{"level pending": 2, "level active": 0, "gone pending": 1, "limited limit_keys": 3})
		pass(time.Minute)
		b.admit(conditionDelta(t, event.Deleted, "b", 4, true))
		expect("after a minute", map[string]float64{"level pending": 0, "level active": 1, "gone pending": 1, "limited limit_keys": 3})
		level.When, level.Ops, level.Version = spec.When{}, event.Ops(), "2"
		gone.Hold, gone.Version = 0, "2"
		exchange()
		expect("without these rules", map[string]float64{"limited limit_keys": 3})
		limited.Limit, limited.Version = spec.Limit{}, "2"
		exchange()
		expect("without a rule", map[string]float64{})
	})
}
