package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) {
	effort.Checks(50, 500, 5000)
	leaks.Main(m)
}

var pods = &event.Resource{Cluster: "test", Kind: "Pod"}

// object returns an object of the default namespace. version is its resourceVersion, by which the
// tests check the order.
func object(t testing.TB, name, uid string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(pods, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"}}`, name, uid, version))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// delta returns a delta of the source pods. old and version are resourceVersions; one of them may
// be 0, as the op requires.
func delta(t testing.TB, op event.Op, name string, old, version int) *event.Delta {
	t.Helper()
	return deltaOf(t, op, name, "uid-"+name, old, version)
}

func deltaOf(t testing.TB, op event.Op, name, uid string, old, version int) *event.Delta {
	t.Helper()
	d := &event.Delta{Source: "pods", Op: op, Seen: time.Now()}
	if old > 0 {
		d.Old = object(t, name, uid, old)
	}
	if version > 0 {
		d.New = object(t, name, uid, version)
	}
	return d
}

// harness is a pipeline under test.
type harness struct {
	*pipeline.Pipeline

	t        testing.TB
	letters  *fakeDeadLetters
	registry *prometheus.Registry // the pipeline's metrics, without those of the process
	metrics  *metrics.Metrics
}

// start creates and starts a pipeline of routes that take all ops of pods unless they specify
// others. It is closed with the test.
func start(t testing.TB, routes ...spec.Settings) *harness {
	t.Helper()
	b := open(t, routes...)
	b.Start(t.Context())
	return b
}

func open(t testing.TB, routes ...spec.Settings) *harness {
	t.Helper()
	return openAs(t, pipeline.Config{}, routes...)
}

// openAs is open with further configuration.
func openAs(t testing.TB, cfg pipeline.Config, routes ...spec.Settings) *harness {
	t.Helper()
	m := metrics.New()
	b := &harness{t: t, letters: &fakeDeadLetters{}, registry: prometheus.NewRegistry(), metrics: m}
	b.registry.MustRegister(m.RouteDeltas, m.RouteErrors, m.Events, m.QueueDepth, m.RoutePending, m.RouteActive, m.RouteLimitKeys, m.RoutePaused, m.QueueOnDisk,
		m.QueueBytes, m.QueueDiskBytes, m.OldestPending, m.DeliverySeconds, m.HandlerSeconds, m.SinkUnavailable)
	for i := range routes {
		r := &routes[i]
		if r.Name == "" {
			r.Name = fmt.Sprintf("route%d", i)
		}
		if r.Sources == nil {
			r.Sources = []string{"pods"}
		}
		if r.Ops == nil {
			r.Ops = event.Ops()
		}
		if r.Batch.Size == 0 {
			r.Batch = spec.Batch{Size: 8, Wait: 10 * time.Millisecond}
		}
	}
	cfg.Routes, cfg.Metrics, cfg.Log, cfg.DeadLetters = routes, m, slog.New(slog.DiscardHandler), b.letters
	p, err := pipeline.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Pipeline = p
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *harness) admit(deltas ...*event.Delta) {
	b.t.Helper()
	for _, d := range deltas {
		commit, err := b.Admit(b.t.Context(), d)
		if err != nil {
			b.t.Fatal(err)
		}
		if commit != nil {
			commit.Commit()
		}
	}
}

// drain delivers the pending deltas.
func (b *harness) drain() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Hour)
	defer cancel()
	begin := time.Now()
	if err := b.Drain(ctx); err != nil {
		b.t.Fatalf("after %v: %v", time.Since(begin), err)
	}
}

// value returns a metric: the sum over all series with these label values.
func (b *harness) value(name string, labels ...string) float64 {
	b.t.Helper()
	return b.values()(name, labels...)
}

// values reads all metrics at once.
func (b *harness) values() func(name string, labels ...string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	return func(name string, labels ...string) (sum float64) {
		for _, f := range families {
			if f.GetName() != "deltarouter_"+name {
				continue
			}
			for _, m := range f.GetMetric() {
				var have []string
				for _, l := range m.GetLabel() {
					have = append(have, l.GetValue())
				}
				if !slices.ContainsFunc(labels, func(want string) bool { return !slices.Contains(have, want) }) {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return sum
	}
}

// balanced checks that the counters of a route add up: each matched delta has one result or is
// pending.
func (b *harness) balanced(route string) {
	b.t.Helper()
	value := b.values()
	get := func(result string) float64 { return value("route_deltas_total", route, result) }
	ended := get(metrics.Delivered) + get(metrics.Dropped) + get(metrics.DeadLettered) + get(metrics.Coalesced) + get(metrics.Suppressed)
	pending := float64(b.Pending(route))
	if matched := get(metrics.Matched); matched != ended+pending {
		b.t.Errorf("route %s: matched %v, but delivered %v + dropped %v + dead-lettered %v + coalesced %v + suppressed %v + pending %v", route, matched,
			get(metrics.Delivered), get(metrics.Dropped), get(metrics.DeadLettered), get(metrics.Coalesced), get(metrics.Suppressed), pending)
	}
	if depth := value("route_queue_deltas", route); depth != pending {
		b.t.Errorf("route %s: route_queue_deltas %v, pending %v", route, depth, pending)
	}
	if bytes := value("route_queue_memory_bytes", route); bytes < 0 || pending == 0 && bytes != 0 {
		b.t.Errorf("route %s: %v bytes in memory, pending %v", route, bytes, pending)
	}
}

// pass lets time pass, and waits until everything that was due is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errDown = errors.New("connection refused")
