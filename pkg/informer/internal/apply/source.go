package apply

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

// counter and gauge are what is used of the metrics' types.
type (
	counter interface{ Inc() }
	gauge   interface {
		Add(float64)
		Set(float64)
	}
)

// Status says how a source is.
type Status struct {
	Source string
	Synced bool // the cache has all objects
	// Reason is what stands in the way: why the source is not synced, or why it gets no news any
	// more. Empty: nothing.
	Reason string
	// Refused: the API server answers, and forbids the resource or does not have it. Waiting does
	// not help, an administrator does.
	Refused bool
}

// Source is a name under which deltas are put through, with its metrics and the health of its
// watches. It is safe for concurrent use.
type Source struct {
	Name string

	watches []*reflector.Health
	synced  chan struct{}
	once    sync.Once

	metrics                           *metrics.Metrics
	deltas                            [event.Sync + 1]counter
	objects, bytes, isSynced, isStale gauge
	bad                               counter
}

// NewSource returns a source without watches.
func NewSource(name string, m *metrics.Metrics) *Source {
	s := &Source{
		Name: name, synced: make(chan struct{}), metrics: m,
		objects: m.SourceObjects.WithLabelValues(name), bytes: m.SourceBytes.WithLabelValues(name),
		isStale: m.SourceStale.WithLabelValues(name), isSynced: m.SourceSynced.WithLabelValues(name),
		bad: m.ObjectErrors.WithLabelValues(name),
	}
	for _, op := range event.SourceOps() {
		s.deltas[op] = m.Deltas.WithLabelValues(name, op.String())
	}
	return s
}

// Add adds a watch. All are added before one of them runs.
func (s *Source) Add(watch *reflector.Health) { s.watches = append(s.watches, watch) }

// Synced returns a channel that is closed once all watches have had all their objects.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Status returns how the source is.
func (s *Source) Status() Status {
	status := Status{Source: s.Name, Synced: true}
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

// Refresh brings what others see of the source up to date.
func (s *Source) Refresh() {
	if !s.Status().Synced {
		s.isSynced.Set(0)
		return
	}
	s.isSynced.Set(1)
	s.once.Do(func() { close(s.synced) })
}

// Age says how long ago the API server was last heard of, by the watch that has waited longest.
func (s *Source) Age() {
	var oldest time.Duration
	for _, w := range s.watches {
		oldest = max(oldest, w.Silence())
	}
	s.isStale.Set(oldest.Seconds())
}

// Measure sets the metrics of how much the watches of the source have.
func (s *Source) Measure(objects, bytes int) {
	s.objects.Set(float64(objects))
	s.bytes.Set(float64(bytes))
}

// Sources are those of a watch. It is safe for concurrent use.
type Sources struct {
	all atomic.Pointer[[]*Source]
}

// Set makes the sources those that are given.
func (s *Sources) Set(all []*Source) { s.all.Store(&all) }

// All returns the sources.
func (s *Sources) All() []*Source { return *s.all.Load() }

// refresh brings what others see of the sources up to date.
func (s *Sources) refresh() {
	for _, source := range s.All() {
		source.Refresh()
	}
}

// count counts a delta.
func (s *Sources) count(op event.Op) {
	for _, source := range s.All() {
		source.deltas[op].Inc()
	}
}

// countRelist counts a list that was not the first.
func (s *Sources) countRelist(reason string) {
	for _, source := range s.All() {
		source.metrics.Relists.WithLabelValues(source.Name, reason).Inc()
	}
}

// Measure keeps the metrics of what is in the store: before, what it had of an object; now, what it
// has.
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
