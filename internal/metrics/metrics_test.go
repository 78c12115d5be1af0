package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestServed shows that every metric has its documented name, and that Prometheus' own linter finds
// no fault.
func TestServed(t *testing.T) {
	m := metrics.New()
	m.SetBuildInfo("v1")
	constant := func(v int64) func() int64 { return func() int64 { return v } }
	m.SetReplication(metrics.Replication{
		Behind:    func() (uint64, time.Duration, bool) { return 3, 2 * time.Second, true },
		Published: constant(4), Snapshots: constant(5), Installed: constant(6), Late: constant(7),
	})
	m.SetState(metrics.State{
		Age: func() time.Duration { return 1500 * time.Millisecond }, Size: func() int64 { return 4096 }, Limit: 1 << 20,
		Room: func() (int64, bool) { return 8192, true },
	})
	m.Deltas.WithLabelValues("pods", "added").Inc()
	m.RouteDeltas.WithLabelValues("r", metrics.Matched).Inc()
	m.Deliveries("r").Observe(time.Now(), time.Second, "", "")
	m.ConfigReloadOK.Set(1)

	problems, err := testutil.GatherAndLint(m.Registry())
	must.Succeed(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	must.Succeed(t, err)
	for _, want := range []string{
		`deltarouter_source_deltas_total{op="added",source="pods"} 1`,
		`deltarouter_route_deltas_total{result="matched",route="r"} 1`,
		`deltarouter_route_delivery_duration_seconds_count{route="r"} 1`,
		"deltarouter_checkpoint_age_seconds 1.5",
		"deltarouter_state_file_bytes 4096",
		"deltarouter_state_file_limit_bytes 1.048576e+06",
		"deltarouter_state_disk_free_bytes 8192",
		"deltarouter_fleet_frames_behind 3",
		"deltarouter_fleet_behind_seconds 2",
		"deltarouter_fleet_published_bytes_total 4",
		"deltarouter_fleet_waits_ended_total 7",
		"deltarouter_config_last_reload_successful 1",
		`deltarouter_build_info{version="v1"} 1`,
		"go_goroutines",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// TestScrapesAreBounded shows that clients cannot start any number of simultaneous scrapes.
func TestScrapesAreBounded(t *testing.T) {
	// Guarantee: probes-bounded
	m := metrics.New()
	counting, release := make(chan struct{}), make(chan struct{})
	m.BeforeScrape(func() { counting <- struct{}{}; <-release })
	handler := m.Handler()
	scrape := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code
	}
	var scrapes sync.WaitGroup
	for range 4 {
		scrapes.Go(func() {
			if code := scrape(); code != http.StatusOK {
				t.Error(code)
			}
		})
		<-counting
	}
	if code := scrape(); code != http.StatusServiceUnavailable {
		t.Errorf("one more is answered with %d", code)
	}
	close(release)
	scrapes.Wait()
}

// TestCount shows that packages that do not import this one count by name, and that a mistake in a
// name or in the number of labels does no harm.
func TestCount(t *testing.T) {
	m := metrics.New()
	env := plugins.Env{Name: "h", Metrics: m}
	env.Count(plugins.GuestFuel).Add(3)
	env.Count(plugins.GuestMemory).Add(7)
	env.Count(plugins.GuestMemory).Add(-2)
	env.Count(plugins.GuestsEnded, "trap").Add(1)
	fuel, memory := m.Guests("h")
	if ended := testutil.ToFloat64(m.GuestsEnded.WithLabelValues("h", "trap")); fuel != 3 || memory != 5 || ended != 1 {
		t.Errorf("fuel %v, memory %v, ended %v, want 3, 5, 1", fuel, memory, ended)
	}
	m.Gauge("source_objects", "pods").Set(4)
	if objects := testutil.ToFloat64(m.SourceObjects.WithLabelValues("pods")); objects != 4 {
		t.Errorf("%v objects, want 4", objects)
	}
	env.Count(plugins.GuestsEnded).Add(1)
	env.Count("guests_begun_total").Add(1)
	m.Gauge("source_deltas_total", "pods", "added").Set(1) // a counter
	(&plugins.Env{}).Count(plugins.GuestFuel).Add(1)
	if n := testutil.CollectAndCount(m.GuestsEnded) + testutil.CollectAndCount(m.Deltas); n != 1 {
		t.Errorf("%d series, want only that of guests_ended_total", n)
	}
}
