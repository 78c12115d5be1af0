package informer

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
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
	// Reason is what stands in the way: why the source is not synced, or why it gets no news any more. Empty: nothing.
	Reason string
	// Refused: the API server answers, and forbids the resource or does not have it. Waiting does not help, an administrator does.
	Refused bool
}

// Statuses returns the status of every source, in the order of their names.
func (f *Factory) Statuses() []Status {
	f.mu.RLock()
	all := make([]Status, 0, len(f.sources))
	for _, s := range f.sources {
		all = append(all, s.status())
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Source, b.Source) })
	return all
}

// Status returns the status of the source of that name.
func (f *Factory) Status(name string) (status Status, ok bool) {
	s, ok := f.source(name)
	if !ok {
		return Status{Source: name, Reason: "there is no such source"}, false
	}
	return s.status(), true
}

// Synced returns a channel that is closed once the source has had all its objects, and the deltas of its first list were all put
// through; nil if there is no such source.
func (f *Factory) Synced(name string) <-chan struct{} {
	s, ok := f.source(name)
	if !ok {
		return nil
	}
	return s.synced
}

// source is one source: its share of the metrics and the state of its watches.
type source struct {
	Source

	watches []*Watch // not changed once the factory runs
	synced  chan struct{}
	once    sync.Once

	metrics                           *metrics.Metrics
	deltas                            [event.Sync + 1]counter
	objects, bytes, isSynced, isStale gauge
	bad                               counter
}

func (f *Factory) source(name string) (*source, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s, ok := f.sources[name]
	return s, ok
}

func (f *Factory) newSource(config Source) *source {
	m, name := f.cfg.Metrics, config.Name
	s := &source{
		Source: config, synced: make(chan struct{}), metrics: m,
		objects: m.SourceObjects.WithLabelValues(name), bytes: m.SourceBytes.WithLabelValues(name),
		isStale: m.SourceStale.WithLabelValues(name), isSynced: m.SourceSynced.WithLabelValues(name),
		bad: m.ObjectErrors.WithLabelValues(name),
	}
	for _, op := range event.SourceOps() {
		s.deltas[op] = m.Deltas.WithLabelValues(name, op.String())
	}
	return s
}

func (s *source) status() Status {
	status := Status{Source: s.Name, Synced: true}
	for _, w := range s.watches {
		synced, reason, refused := w.state()
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

// changed brings what others see of the source up to date.
func (s *source) changed() {
	if !s.status().Synced {
		s.isSynced.Set(0)
		return
	}
	s.isSynced.Set(1)
	s.once.Do(func() { close(s.synced) })
}

// age says how long ago the API server was last heard of, by the watch that has waited longest.
func (s *source) age() {
	var oldest time.Duration
	for _, w := range s.watches {
		if at := w.heardAt.Load(); at > 0 {
			oldest = max(oldest, time.Since(time.Unix(0, at)))
		}
	}
	s.isStale.Set(oldest.Seconds())
}

// state is a Watch's part of a status.
type state struct {
	mu      sync.Mutex
	synced  bool
	reason  string
	refused bool
	logged  string // the last reason that was logged
	relist  string // why the next list is necessary
}

func (w *Watch) state() (synced bool, reason string, refused bool) {
	w.is.mu.Lock()
	defer w.is.mu.Unlock()
	return w.is.synced, w.is.reason, w.is.refused
}

func (w *Watch) setSynced(synced bool) {
	w.is.mu.Lock()
	w.is.synced = synced
	w.is.mu.Unlock()
	for _, s := range *w.sources.Load() {
		s.changed()
	}
}

// heard notes that the API server is there.
func (w *Watch) heard() { w.heardAt.Store(time.Now().UnixNano()) }

// reached notes that a request succeeded.
func (w *Watch) reached() {
	w.heard()
	w.is.mu.Lock()
	recovered := w.is.reason != ""
	w.is.reason, w.is.logged, w.is.refused = "", "", false
	w.is.mu.Unlock()
	if recovered {
		w.log.Info("the API server answers", "watch", w.name)
	}
}

// failing notes why nothing comes at the moment. The log hears of it when the reason changes.
func (w *Watch) failing(err error) {
	reason := strings.TrimSpace(err.Error())
	w.is.mu.Lock()
	known := w.is.logged == reason
	w.is.reason, w.is.logged = reason, reason
	w.is.refused = apierrors.IsForbidden(err) || errors.Is(err, errAbsent)
	w.is.mu.Unlock()
	if !known {
		w.log.Warn("cannot list or watch, trying again", "watch", w.name, "err", reason)
	}
}

// noteError remembers what may be the reason of the next list.
func (w *Watch) noteError(err error) {
	reason := "watch_ended"
	switch {
	case err == nil:
		return
	case errors.Is(err, errWentBack):
		reason = "rewound"
	case errors.Is(err, errMoved):
		reason = "moved"
	case isExpired(err):
		reason = "expired"
	case isAhead(err):
		reason = "ahead"
	case isDenied(err):
		reason = "denied"
	case isAnswer(err):
		reason = "refused"
	}
	w.is.mu.Lock()
	defer w.is.mu.Unlock()
	if w.is.relist == "" || reason != "watch_ended" { // that it ends as well says less
		w.is.relist = reason
	}
}

// relistReason returns the reason of the list at hand.
func (w *Watch) relistReason() string {
	w.is.mu.Lock()
	defer w.is.mu.Unlock()
	reason := cmp.Or(w.is.relist, "restarted")
	w.is.relist = ""
	return reason
}

// leftOut counts and reports an object that could not be read.
func (w *Watch) leftOut(e *objectError) {
	for _, s := range *w.sources.Load() {
		s.bad.Inc()
		w.log.Error("object cannot be read and is left out", "source", s.Name, "object", e.key.String(), "err", e.reason)
	}
}
