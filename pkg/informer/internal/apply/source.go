package apply

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

type (
	// Metrics finds the series of the metrics of sources. The names are those of docs/METRICS.md
	// without the prefix. The first label is the name of the source. It is safe for concurrent use.
	Metrics interface {
		// Count returns the series of a counter with these values of its labels, never nil.
		Count(metric string, labels ...string) Counter
		// Gauge returns the series of a gauge, never nil.
		Gauge(metric string, labels ...string) Gauge
		// ForgetSource removes the series of a removed source.
		ForgetSource(name string)
	}
	// Counter is a series that only grows.
	Counter = interface{ Add(n float64) }
	// Gauge is a series with any value.
	Gauge = interface {
		Add(n float64)
		Set(n float64)
	}
)

// Uncounted is a Metrics that nothing reads.
type Uncounted struct{}

// Count implements [Metrics].
func (Uncounted) Count(string, ...string) Counter { return Uncounted{} }

// Gauge implements [Metrics].
func (Uncounted) Gauge(string, ...string) Gauge { return Uncounted{} }

// ForgetSource implements [Metrics].
func (Uncounted) ForgetSource(string) {}

// Add implements [Counter].
func (Uncounted) Add(float64) {}

// Set implements [Gauge].
func (Uncounted) Set(float64) {}

// Status is the status of a source.
type Status struct {
	Source string
	Synced bool // the cache has all objects
	// Reason says why the source is not synced, or why it receives no changes. Empty: it has no
	// problem.
	Reason string
	// Refused: the API server answers, and forbids the resource or does not have it. It stays so
	// until an administrator changes it.
	Refused bool
	// Namespaces is the number of the namespaces that its namespaceSelector selects; nil: it has
	// none.
	Namespaces *int
}

// Source names the deltas of one or more watches, and has their metrics and their health. It is
// safe for concurrent use.
type Source struct {
	Name string

	watches []*reflector.Health
	within  *Namespaces // nil: the source selects no namespaces
	synced  chan struct{}
	once    sync.Once

	metrics                           Metrics
	deltas                            [event.Sync + 1]Counter
	objects, bytes, isSynced, isStale Gauge
	unproven, held                    Gauge
	bad                               Counter
}

// NewSource returns a source without watches.
func NewSource(name string, m Metrics) *Source {
	s := &Source{
		Name: name, synced: make(chan struct{}), metrics: m,
		objects: m.Gauge("source_objects", name), bytes: m.Gauge("source_bytes", name), isSynced: m.Gauge("source_synced", name),
		isStale: m.Gauge("source_last_contact_seconds", name), unproven: m.Gauge("source_unproven_seconds", name),
		held: m.Gauge("source_held_changes", name), bad: m.Count("source_object_errors_total", name),
	}
	for _, op := range event.SourceOps() {
		s.deltas[op] = m.Count("source_deltas_total", name, op.String())
	}
	return s
}

// Add adds a watch. All are added before one of them runs.
func (s *Source) Add(watch *reflector.Health) { s.watches = append(s.watches, watch) }

// Select sets the namespaces whose objects the source has. found is the watch that finds them.
func (s *Source) Select(within *Namespaces, found *reflector.Health) {
	s.within = within
	s.Add(found)
}

// Synced returns a channel that is closed once all watches have had all their objects.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Status returns the status of the source.
func (s *Source) Status() Status {
	status := Status{Source: s.Name, Synced: true}
	if s.within != nil {
		n := s.within.Len()
		status.Namespaces = &n
	}
	for _, w := range s.watches {
		synced, reason, refused := w.State()
		status.Synced = status.Synced && synced
		status.Refused = status.Refused || refused
		if status.Reason == "" {
			status.Reason = reason
		}
	}
	if status.Synced || status.Reason != "" {
		return status
	}
	status.Reason = "the first list is not complete"
	return status
}

// Refresh updates the metric and the channel that report whether the source is synced.
func (s *Source) Refresh() {
	if !s.Status().Synced {
		s.isSynced.Set(0)
		return
	}
	s.isSynced.Set(1)
	s.once.Do(func() { close(s.synced) })
}

// Age updates the metrics of the times since the last sign of the API server, and since the last
// proof that no change is missing, of the watch with the longest, and that of the changes that
// wait.
func (s *Source) Age() {
	var oldest, unproven time.Duration
	held := 0
	for _, w := range s.watches {
		held += w.HeldBack()
		oldest, unproven = max(oldest, w.Silence()), max(unproven, w.Unproven())
	}
	s.isStale.Set(oldest.Seconds())
	s.unproven.Set(unproven.Seconds())
	s.held.Set(float64(held))
}

// Measure sets the metrics of the objects of the source and their size.
func (s *Source) Measure(objects, bytes int) {
	s.objects.Set(float64(objects))
	s.bytes.Set(float64(bytes))
}

// Sources are the sources of one watch. It is safe for concurrent use.
type Sources struct {
	all atomic.Pointer[[]*Source]
}

// Set replaces the sources.
func (s *Sources) Set(all []*Source) { s.all.Store(&all) }

// All returns the sources.
func (s *Sources) All() []*Source { return *s.all.Load() }

// refresh calls [Source.Refresh] of each source.
func (s *Sources) refresh() {
	for _, source := range s.All() {
		source.Refresh()
	}
}

// count counts a delta.
func (s *Sources) count(op event.Op) {
	for _, source := range s.All() {
		source.deltas[op].Add(1)
	}
}

// countRelist counts every list but the first.
func (s *Sources) countRelist(reason string) {
	for _, source := range s.All() {
		source.metrics.Count("source_relists_total", source.Name, reason).Add(1)
	}
}

// Measure updates the metrics of the store after one object changed from before to now; nil: no
// object.
func (s *Sources) Measure(before, now *event.Object) {
	objects, bytes := 0, 0
	if before != nil {
		objects, bytes = -1, -before.Size()
	}
	if now != nil {
		objects, bytes = objects+1, bytes+now.Size()
	}
	for _, source := range s.All() {
		if bytes != 0 {
			source.bytes.Add(float64(bytes))
		}
		if objects != 0 {
			source.objects.Add(float64(objects))
		}
	}
}
