package metrics_test

import (
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestExemplars shows that a histogram has the id of at most one event per second.
func TestExemplars(t *testing.T) {
	m := metrics.New()
	d := m.Deliveries("r")
	start := time.Unix(1_000_000, 0)
	d.Observe(start, 1*time.Millisecond, "", "") // no event
	// The id and its label have 129 characters.
	d.Observe(start, 1*time.Millisecond, strings.Repeat("x", 81), "")
	d.Observe(start, 1*time.Millisecond, "\xff", "")
	d.Observe(start, 2*time.Millisecond, "first", "")
	d.Observe(start.Add(999*time.Millisecond), 200*time.Millisecond, "too soon", "")
	d.Observe(start.Add(time.Second), 90*time.Second, "second", "")

	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	text := w.Body.String()
	if strings.Count(text, "event_id=") != 2 || !strings.Contains(text, `# {event_id="first"} 0.002`) || !strings.Contains(text, `# {event_id="second"} 90`) {
		t.Errorf("other exemplars than of first and second:\n%s", text)
	}
	if got := histogram(t, m).GetSampleCount(); got != 6 {
		t.Errorf("%d observations, want 6", got)
	}
}

// TestNativeHistograms shows that a histogram has classic and native buckets, and that their number
// is bounded.
func TestNativeHistograms(t *testing.T) {
	m := metrics.New()
	d := m.Deliveries("r")
	for n := range 2000 {
		took, err := time.ParseDuration(strconv.Itoa(n*n*n+1) + "us")
		must.Succeed(t, err)
		d.Observe(time.Unix(0, 0), took, "", "")
	}
	h := histogram(t, m)
	var native uint32
	for _, span := range h.GetPositiveSpan() {
		native += span.GetLength()
	}
	if len(h.GetBucket()) != 12 || native < 10 || native > 40 || h.GetSampleCount() != 2000 {
		t.Errorf("%d classic and %d native buckets with %d observations", len(h.GetBucket()), native, h.GetSampleCount())
	}
}

// BenchmarkObserve prints the costs that histogram.go states: of an observation without exemplar
// and with one, and the bytes of a histogram with as many native buckets as it may have.
func BenchmarkObserve(b *testing.B) {
	for name, step := range map[string]time.Duration{"plain": 0, "exemplar": time.Second} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			d, at := metrics.New().Deliveries("r"), time.Unix(1_000_000, 0)
			for n := range b.N {
				at = at.Add(step)
				d.Observe(at, time.Duration(n%1000)*time.Millisecond, "0123456789abcdef0123456789abcdef", "")
			}
		})
	}
	b.Run("histograms", func(b *testing.B) {
		b.ReportAllocs()
		m := metrics.New()
		for n := range b.N {
			d := m.Deliveries(strconv.Itoa(n))
			for took := range 1000 {
				d.Observe(time.Unix(0, 0), time.Duration(took*took*took)*time.Microsecond, "", "")
			}
		}
		var mem runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&mem)
		b.ReportMetric(float64(mem.HeapAlloc)/float64(b.N), "heap-B/histogram")
		runtime.KeepAlive(m)
	})
}

// histogram returns the histogram of the deliveries of the route r.
func histogram(t *testing.T, m *metrics.Metrics) *dto.Histogram {
	t.Helper()
	families, err := m.Registry().Gather()
	must.Succeed(t, err)
	for _, f := range families {
		if f.GetName() == "deltarouter_route_delivery_duration_seconds" {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatal("no histogram")
	return nil
}
