package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pods = &event.Resource{Cluster: "test", Kind: "Pod"}

// object makes an object of the default namespace. version is its resourceVersion, and what order is told by.
func object(t testing.TB, name, uid string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(pods, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"}}`, name, uid, version))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// delta makes a delta of the source pods. old and version are resourceVersions; one of them may be 0, as the op demands.
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

// sink records what it takes. refuse may answer with an error for an event.
type sink struct {
	refuse func(event.Event) error
	before func(context.Context) // called at the start of each Write

	mu     sync.Mutex
	events []event.Event
	writes []int // how many events each Write had
}

func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	if s.before != nil {
		s.before(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, len(events))
	errs, failed := make([]error, len(events)), false
	for i, e := range events {
		if s.refuse != nil {
			if errs[i] = s.refuse(e); errs[i] != nil {
				failed = true
				continue
			}
		}
		s.events = append(s.events, e)
	}
	if !failed {
		return nil
	}
	return errs
}

func (s *sink) Close(context.Context) error { return nil }

// got lists what the sink took: subject@resourceVersion.
func (s *sink) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, e := range s.events {
		list = append(list, e.Type[len(event.TypePrefix):]+" "+e.Subject[len("default/"):]+"@"+e.K8sResourceVersion)
	}
	return list
}

// wrote lists how many events each Write had.
func (s *sink) wrote() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// handler is a plugins.Handler of a function.
type handler func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error)

func (h handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	return h(ctx, batch)
}
func (h handler) Close(context.Context) error { return nil }

// each makes a handler of a function of one delta.
func each(f func(d *event.Delta) plugins.Result) handler {
	return func(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
		results := make([]plugins.Result, len(batch))
		for i, d := range batch {
			results[i] = f(d)
		}
		return results, nil
	}
}

func ok(*event.Delta) plugins.Result {
	return plugins.Result{Events: []plugins.Emit{{Data: []byte(`{}`)}}}
}

// letters records dead letters.
type letters struct {
	refuse func(checkpoint.Letter) error
	mu     sync.Mutex
	all    []checkpoint.Letter
	writes int
	gone   []uint64
}

func (l *letters) Add(_ context.Context, letters []checkpoint.Letter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		for _, letter := range letters {
			if err := l.refuse(letter); err != nil {
				return err
			}
		}
	}
	l.writes++
	for _, letter := range letters {
		letter.ID = uint64(len(l.all) + 1)
		l.all = append(l.all, letter)
	}
	return nil
}

func (l *letters) Remove(_ context.Context, ids []uint64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, ids...)
	return len(ids), nil
}

func (l *letters) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []string{}
	for _, letter := range l.all {
		list = append(list, fmt.Sprintf("%s@%s %s", letter.Delta.Key().Name, letter.Delta.Object().ResourceVersion(), letter.Sink))
	}
	return list
}

// bench is a pipeline under test.
type bench struct {
	*pipeline.Pipeline

	t        testing.TB
	letters  *letters
	registry *prometheus.Registry // the pipeline's metrics, without those of the process
	metrics  *metrics.Metrics
}

// start makes and starts a pipeline of routes that take all ops of pods unless they say otherwise. It is closed with the test.
func start(t testing.TB, routes ...pipeline.Route) *bench {
	t.Helper()
	b := open(t, routes...)
	b.Start(t.Context())
	return b
}

func open(t testing.TB, routes ...pipeline.Route) *bench {
	t.Helper()
	return openAs(t, pipeline.Config{}, routes...)
}

// openAs is open with what else the configuration says.
func openAs(t testing.TB, cfg pipeline.Config, routes ...pipeline.Route) *bench {
	t.Helper()
	m := metrics.New()
	b := &bench{t: t, letters: &letters{}, registry: prometheus.NewRegistry(), metrics: m}
	b.registry.MustRegister(m.RouteDeltas, m.RouteErrors, m.Events, m.QueueDepth, m.RoutePending, m.RouteActive, m.RouteLimitKeys, m.RoutePaused, m.QueueOnDisk,
		m.QueueDiskBytes, m.OldestOwed, m.DeliverySeconds, m.HandlerSeconds)
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
			r.Batch = pipeline.Batch{Size: 8, Wait: 10 * time.Millisecond}
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

func (b *bench) admit(deltas ...*event.Delta) {
	b.t.Helper()
	for _, d := range deltas {
		commit, err := b.Admit(b.t.Context(), d)
		if err != nil {
			b.t.Fatal(err)
		}
		if commit != nil {
			commit()
		}
	}
}

// drain delivers what is owed.
func (b *bench) drain() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Hour)
	defer cancel()
	begin := time.Now()
	if err := b.Drain(ctx); err != nil {
		b.t.Fatalf("after %v: %v", time.Since(begin), err)
	}
}

// value reads a metric: the sum over all with these label values.
func (b *bench) value(name string, labels ...string) float64 {
	b.t.Helper()
	return b.values()(name, labels...)
}

// values reads all metrics at once.
func (b *bench) values() func(name string, labels ...string) float64 {
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

// balanced checks that the counters of a route add up: what was matched was ended in one way or is owed.
func (b *bench) balanced(route string) {
	b.t.Helper()
	value := b.values()
	get := func(result string) float64 { return value("route_deltas_total", route, result) }
	ended := get(metrics.Delivered) + get(metrics.Dropped) + get(metrics.DeadLettered) + get(metrics.Folded) + get(metrics.Suppressed)
	owed := float64(b.Owed(route))
	if matched := get(metrics.Matched); matched != ended+owed {
		b.t.Errorf("route %s: matched %v, but delivered %v + dropped %v + dead-lettered %v + folded %v + suppressed %v + owed %v", route, matched,
			get(metrics.Delivered), get(metrics.Dropped), get(metrics.DeadLettered), get(metrics.Folded), get(metrics.Suppressed), owed)
	}
	if depth := value("queue_depth", route); depth != owed {
		b.t.Errorf("route %s: queue_depth %v, owed %v", route, depth, owed)
	}
}

// pass lets time go by, and waits until everything that was due is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errDown = errors.New("connection refused")
