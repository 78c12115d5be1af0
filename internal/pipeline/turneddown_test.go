package pipeline_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// TestTurnedDown: deltas that the table excludes without an evaluation count as filtered, too: a
// second later, at a scrape, and after an exchange of the routes.
func TestTurnedDown(t *testing.T) {
	// Guarantee: filter-table
	env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": nil}})
	if err != nil {
		t.Fatal(err)
	}
	program, err := env.Compile(`object.metadata.name == "a"`, cel.Filter, "pods")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := spec.Settings{Name: "r", Version: "1", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(&recordingSink{}), Filter: filters.NewCEL(filters.CELConfig{Program: program})}
		b := start(t, r)
		admit := func(names ...string) {
			for _, name := range names {
				b.admit(delta(t, event.Added, name, 0, 1))
			}
		}
		filtered := func(when string, want float64) {
			t.Helper()
			if n := b.value("route_deltas_total", "r", metrics.Filtered); n != want {
				t.Errorf("%s: %v filtered, want %v", when, n, want)
			}
		}
		admit("a", "b", "c")
		time.Sleep(1500 * time.Millisecond) // of the bubble's clock
		filtered("after a second", 2)
		admit("d")
		b.metrics.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		filtered("at a scrape", 3)
		admit("e")
		change, err := b.Prepare([]spec.Settings{r})
		if err != nil {
			t.Fatal(err)
		}
		change.Swap()
		change.Finish(t.Context())
		filtered("after the routes were exchanged", 4)
		admit("f", "a")
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		filtered("in the end", 5)
	})
}

// TestAbsentCounted: a field that many filters want and an object lacks is counted for each route:
// a second later, at a scrape, after an exchange of the routes, and in the end.
func TestAbsentCounted(t *testing.T) {
	// Guarantee: absent-in-filter
	env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": nil}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := start(t)
		var routes []spec.Settings
		for i := range 10 {
			program, err := env.Compile(fmt.Sprintf(`object.metadata.labels.team == "t%d"`, i), cel.Filter, "pods")
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("r%d", i)
			filter := filters.NewCEL(filters.CELConfig{Program: program, Absent: func(deltas uint64) {
				b.metrics.RouteErrors.WithLabelValues(name, "absent").Add(float64(deltas))
			}})
			routes = append(routes, spec.Settings{Name: name, Version: "1", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(&recordingSink{}), Filter: filter})
		}
		exchange := func() {
			change, err := b.Prepare(routes)
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			change.Finish(t.Context())
		}
		admit := func(n int) {
			for range n {
				b.admit(delta(t, event.Added, "a", 0, 1))
			}
		}
		counted := func(when string, want float64) {
			t.Helper()
			for _, r := range routes {
				if n := b.value("route_errors_total", r.Name, "absent"); n != want {
					t.Errorf("%s: %v missing fields of %s, want %v", when, n, r.Name, want)
				}
			}
		}
		exchange()
		admit(3)
		time.Sleep(1500 * time.Millisecond) // of the bubble's clock
		counted("after a second", 3)
		admit(2)
		b.metrics.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		counted("at a scrape", 5)
		admit(2)
		exchange()
		counted("after the routes were exchanged", 7)
		admit(2)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		counted("in the end", 9)
	})
}
