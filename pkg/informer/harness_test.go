package informer_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

// memory is a store over a map.
type memory struct {
	mu      sync.Mutex
	objects map[event.Key]*event.Object
	between func() // called during All, after the first object; nil: not at all
}

func newMemory() *memory { return &memory{objects: make(map[event.Key]*event.Object)} }

func (m *memory) Get(key event.Key) *event.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key]
}

func (m *memory) Put(o *event.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[o.Key()] = o
}

func (m *memory) Delete(key event.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

func (m *memory) All() iter.Seq[*event.Object] {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, between := slices.Collect(maps.Values(m.objects)), m.between
	if between == nil {
		return slices.Values(all)
	}
	return func(yield func(*event.Object) bool) {
		for i, o := range all {
			if i == 1 {
				between()
			}
			if !yield(o) {
				return
			}
		}
	}
}

// sink is a Downstream that records its deltas.
type sink struct {
	mu     sync.Mutex
	deltas []*event.Delta
	came   chan struct{}
	admit  func(ctx context.Context, d *event.Delta) error
	ignore func(d *event.Delta) bool // true: not wanted
}

func newSink() *sink { return &sink{came: make(chan struct{}, 1)} }

func (s *sink) Admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	if s.admit != nil {
		if err := s.admit(ctx, d); err != nil {
			return nil, err
		}
	}
	if s.ignore != nil && s.ignore(d) {
		return nil, nil
	}
	return event.CommitFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deltas = append(s.deltas, d)
		select {
		case s.came <- struct{}{}:
		default:
		}
	}), nil
}

// take returns the deltas since the last call, as "updated pods default/a@5 (was 4)".
func (s *sink) take() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.deltas {
		all = append(all, describe(d))
	}
	s.deltas = nil
	return all
}

func describe(d *event.Delta) string {
	text := d.String()
	if d.Initial {
		text += " initial"
	}
	if d.Stale {
		text += " stale"
	}
	return text
}

// want waits for the wanted number of deltas, and compares. sorted: in any order.
func (s *sink) want(t *testing.T, sorted bool, want ...string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s.mu.Lock()
		n := len(s.deltas)
		s.mu.Unlock()
		if n >= len(want) {
			break
		}
		select {
		case <-s.came:
		case <-deadline:
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(s.take(), "\n"), strings.Join(want, "\n"))
		}
	}
	got := s.take()
	if sorted {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// rig is a factory with one watch of pods over a fake API server.
type rig struct {
	t       *testing.T
	api     *api
	sink    *sink
	store   *memory
	factory *informer.Factory
	watch   *informer.Watch
	metrics *metrics.Metrics
	log     *logged.Buffer
	stop    func()
}

type options struct {
	spec   informer.Spec
	config informer.Config
	resync time.Duration
	names  []string
	lossy  bool                    // see informer.Restored
	later  *later                  // how objects are restored; nil: before the watch runs
	before func(*informer.Factory) // adds other watches first; nil: there are none
	kept   *kept.Set               // see informer.Wanted
}

func newRig(t *testing.T, a *api, o options) *rig {
	t.Helper()
	r := &rig{t: t, api: a, sink: newSink(), store: newMemory(), metrics: metrics.New(), log: &logged.Buffer{}}
	cfg := o.config
	cfg.Client, cfg.Cluster, cfg.Metrics, cfg.Downstream = a.client(), "test", r.metrics, r.sink
	cfg.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Backoff.Min, cfg.Backoff.Max = 5*time.Millisecond, 20*time.Millisecond
	r.factory = informer.New(cfg)
	if o.spec.Resource.Resource == "" {
		o.spec.Resource.Version, o.spec.Resource.Resource = "v1", "pods"
	}
	if o.names == nil {
		o.names = []string{"pods"}
	}
	var sources []informer.Source
	for _, name := range o.names {
		sources = append(sources, informer.Source{Name: name, Resync: o.resync})
	}
	if o.before != nil {
		o.before(r.factory)
	}
	wanted := informer.Wanted{Spec: o.spec, Store: r.store, Sources: sources, Kept: keysOf(o.kept)}
	r.watch = wanted.Add(r.factory)
	return r
}

// syncedRig is newRig, started, synced and with its watch open.
func syncedRig(t *testing.T, a *api, o options) *rig {
	t.Helper()
	r := newRig(t, a, o)
	r.start()
	r.synced()
	a.awaitWatch()
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.factory.Run(ctx)
	}()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			began := time.Now()
			<-done
			if took := time.Since(began); took > 10*time.Second {
				r.t.Errorf("Run took %v to stop", took)
			}
		})
	}
	r.t.Cleanup(r.stop)
}

func (r *rig) synced() {
	r.t.Helper()
	select {
	case <-r.factory.Synced("pods"):
	case <-time.After(time.Minute):
		status, _ := r.factory.Status("pods")
		r.t.Fatalf("not synced: %+v\n%s", status, r.log)
	}
}

// metric returns the value of a metric whose name and labels contain all texts.
func (r *rig) metric(texts ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Registry().Gather()
	must.Succeed(r.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			line := family.GetName() + " " + fmt.Sprint(m.GetLabel())
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// eventually polls a condition that has no signal.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}

// peek returns the deltas since the last take.
func (s *sink) peek() []*event.Delta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deltas)
}

// bubble is t.Run on the fake clock of testing/synctest: the seconds between two watches take no
// time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestMain(m *testing.M) {
	// The second one waits for a millisecond since the last error, perhaps that of another clock.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	leaks.Main(m)
}

// keysOf returns the paths of a set of fields without those of the identity, which the watch adds;
// nil: it has all.
func keysOf(fields *kept.Set) [][]string {
	if fields == nil || fields.IsWhole() {
		return nil
	}
	return append([][]string{}, slices.Collect(fields.All())...)
}
