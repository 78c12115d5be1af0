package informer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

type (
	// Metrics finds the series of the metrics of sources. The names are those of docs/METRICS.md
	// without the prefix. The first label is the name of the source. It is safe for concurrent use.
	Metrics = apply.Metrics
	// Counter is a series that only grows.
	Counter = apply.Counter
	// Gauge is a series with any value.
	Gauge = apply.Gauge
	// Cache stores the objects of a watch. Put and Delete are called under the watch's cut lock, by
	// one goroutine at a time; Get may be called concurrently.
	Cache = persist.Cache
	// Changes are the changes of a watch between two calls of Dirty.
	Changes = persist.Changes
	// Cut holds watches at one moment. Its method End releases them and returns their changes.
	Cut = persist.Cut
	// Incarnation identifies one of the objects that have had the same name.
	Incarnation = persist.Incarnation
	// Restored is the saved state of a watch: the sum of its [Changes].
	Restored = persist.Restored
	// Saved reads the saved objects of a watch that are not restored yet.
	Saved = persist.Saved
)

// Downstream takes the deltas. It must be safe for concurrent use; deltas of one watch arrive one
// after the other.
type Downstream interface {
	// Admit finds the routes that want the delta, and waits until all of them have room for it or
	// ctx is done. It returns nil if no route wants the delta. An error means that ctx is done.
	Admit(ctx context.Context, d *event.Delta) (event.Admission, error)
}

// Config has the dependencies and settings of a Factory.
type Config struct {
	Client     *Client
	Cluster    string       // name of the cluster, part of every event
	Metrics    Metrics      // nil: nothing is counted
	Log        *slog.Logger // nil: nothing is logged
	Downstream Downstream

	// TakesInitial reports whether Downstream looks at the objects of initial deltas of a source.
	// If not, a watch that keeps only identities keeps no more of them while the first list
	// arrives, and the deltas have these. nil: it does.
	TakesInitial func(source string) bool

	// Gate is set if there is a checkpoint; nil: no changes are collected for a checkpoint. It is
	// called with the [Spec.ID] of a watch and an object, before a delta that a route wants is
	// committed:
	//   - if no cut on disk is known to have the object: with its first state, and with each state
	//     that differs from the one before;
	//   - if a cut has the object: when the delta has transit.State.Enters.
	//
	// The returned channel becomes transit.State.Durable of this delta and of the following ones.
	// It is closed when the state is on disk. Gate is called under the cut lock, so it must not
	// block and must not call a Watch or the Factory.
	Gate func(watchID string, o *event.Object) <-chan struct{}
	// PageSize forces lists in pages of that many objects. 0: the Reflector streams the initial
	// events if the API server supports that, and lists otherwise.
	PageSize int64
	// Backoff is the delay between retries. It doubles from Min to Max, and is shortened by up to
	// half at random. Defaults to 500ms to 30s.
	Backoff struct{ Min, Max time.Duration }
	// ProbeInterval is the longest time between two probes of the API server for a resource while
	// one of its watches is open: whether its resourceVersion went back, whether it is another
	// cluster, and whether it would still open the watches. Defaults to half a minute.
	ProbeInterval time.Duration
	// Silence is the time after which a watch over HTTP/1.1 is reopened if it received nothing, not
	// even a bookmark. API servers send bookmarks about once a minute, so most of the reopened
	// connections were healthy; that costs three small requests. Over HTTP/2, where pings detect a
	// dead connection, the time is four times as long and catches a proxy that answers pings but
	// forwards no data. Defaults to 45s.
	Silence time.Duration
	// Clock dates the deltas; requests to the API server use real time. nil: the real clock.
	Clock interface{ Now() time.Time }
	// BookmarkWait is the time of silence after which a stream of initial events is taken for one
	// that never marks their end; a stream that is not silent has ten times as long. Defaults to
	// 30s.
	BookmarkWait time.Duration
	// HeaderTimeout is the longest time until the answer of a list or a watch begins. It and
	// BookmarkWait double each time that a list took too long, up to 32 times. Defaults to 60s.
	HeaderTimeout time.Duration
	// Unproven is the time after which the objects are listed although the watch is open, if it
	// brought no event and no bookmark while the API server has newer objects. Between two such
	// lists is a minute at least, and eight minutes if they change nothing. Defaults to 3m.
	Unproven time.Duration
}

// Factory runs watches and reports their status.
type Factory struct {
	cfg      Config
	clock    timer.Clock
	identity *client.IdentityCache
	probes   *reflector.Probes
	absences *client.Absences
	changing sync.Mutex // held by Reconfigure

	mu      sync.RWMutex // guards the fields below
	watches []*Watch
	sources map[string]*source
	epoch   int             // the number of calls of Reconfigure
	ctx     context.Context //nolint:containedctx // of Run, for watches that come later; nil: it does not run
	running sync.WaitGroup
}

// New returns a Factory without watches.
func New(cfg Config) *Factory {
	cfg.Backoff.Min = cmp.Or(cfg.Backoff.Min, 500*time.Millisecond)
	cfg.Backoff.Max = cmp.Or(cfg.Backoff.Max, 30*time.Second)
	cfg.BookmarkWait = cmp.Or(cfg.BookmarkWait, 30*time.Second)
	cfg.HeaderTimeout = cmp.Or(cfg.HeaderTimeout, client.HeaderTimeout)
	cfg.Unproven = cmp.Or(cfg.Unproven, 3*time.Minute)
	cfg.Silence = cmp.Or(cfg.Silence, 45*time.Second)
	cfg.ProbeInterval = cmp.Or(cfg.ProbeInterval, 30*time.Second)
	if cfg.Metrics == nil {
		cfg.Metrics = apply.Uncounted{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &Factory{cfg: cfg, clock: timer.Of(cfg.Clock), sources: make(map[string]*source), probes: reflector.NewProbes()}
	if cfg.Client != nil { // a factory with injected deltas has no client
		f.identity, f.absences = client.NewIdentityCache(cfg.Client.api, cfg.Log), client.NewAbsences(cfg.Client.api)
	}
	return f
}

// backoff returns the delay between retries.
func (f *Factory) backoff() backoff.Policy {
	return backoff.Policy{Min: f.cfg.Backoff.Min, Max: f.cfg.Backoff.Max}
}

// Watch adds a watch. Each of its deltas is emitted once per source, and a source may have several
// watches. All watches are added before Run; afterwards use [Factory.Reconfigure]. With a
// checkpoint, all Specs must differ. The watch that finds the namespaces of others comes before
// them, see [Spec.Namespaces]; without it they keep the objects in all namespaces.
func (f *Factory) Watch(spec Spec, store Cache, sources ...Source) *Watch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.newWatch(spec, store, 0, f.watches)
	var all []*apply.Source
	for _, config := range sources {
		s := f.sources[config.Name]
		if s == nil {
			s = f.newSource(config)
			f.sources[config.Name] = s
		}
		s.add(w)
		all = append(all, s.Source)
	}
	w.sources.Set(all)
	f.watches = append(f.watches, w)
	lead(f.watches)
	return w
}

// Resource returns the resource of a Spec, with the kind if a watch of that Spec exists and knows
// it.
func (f *Factory) Resource(spec Spec) *event.Resource {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, w := range f.watches {
		if w.spec == spec {
			return w.Resource()
		}
	}
	return &event.Resource{GroupVersionResource: spec.Resource, Cluster: f.cfg.Cluster}
}

// Cut calls read while the watch of a Spec is held, and returns the applied resourceVersion of its
// store at that moment (see [Watch.Cut]; while a list is being applied, parts of the store are
// newer). read must be quick because the watch waits. Without such a watch ok is false and read is
// not called.
func (f *Factory) Cut(spec Spec, read func()) (applied string, ok bool) {
	f.mu.RLock()
	i := slices.IndexFunc(f.watches, func(w *Watch) bool { return w.spec == spec })
	if i < 0 {
		f.mu.RUnlock()
		return "", false
	}
	w := f.watches[i]
	f.mu.RUnlock()
	w.Cut(func(version string, _ bool) {
		applied = version
		read()
	})
	return applied, true
}

// nameOf returns the name of a watch in logs.
func nameOf(spec *Spec) string {
	name := client.ResourceName(spec.Resource)
	if spec.Namespace != "" {
		name += " in " + spec.Namespace
	}
	if spec.NamespaceSelector != "" {
		name += " in namespaces with labels " + spec.NamespaceSelector
	}
	if spec.LabelSelector != "" {
		name += " with labels " + spec.LabelSelector
	}
	if spec.FieldSelector != "" {
		name += " with fields " + spec.FieldSelector
	}
	return name
}

// Run runs the watches until ctx is done, and returns once all of them have stopped. Stopping waits
// only for running calls of the store and of Downstream.
func (f *Factory) Run(ctx context.Context) {
	f.mu.Lock()
	f.ctx = ctx
	for _, w := range f.watches {
		f.start(w) //nolint:contextcheck // it runs as long as Run does
	}
	f.mu.Unlock()
	f.age(ctx)
	f.mu.Lock()
	f.ctx = nil
	f.mu.Unlock()
	f.running.Wait()
}

// start runs a watch, and the resyncs of its sources that do not run. mu is held.
func (f *Factory) start(w *Watch) {
	if f.ctx == nil {
		return
	}
	if w.stop == nil {
		ctx, stop := context.WithCancel(f.ctx)
		w.stop, w.stopped = stop, make(chan struct{})
		f.running.Go(func() {
			defer close(w.stopped)
			w.run(ctx)
		})
	}
	for _, s := range f.sources {
		if s.config.Resync > 0 && w.resyncs[s] == nil && slices.Contains(s.watches, w) {
			ctx, stop := context.WithCancel(f.ctx)
			if w.resyncs == nil {
				w.resyncs = make(map[*source]context.CancelFunc)
			}
			w.resyncs[s] = stop
			f.running.Go(func() { f.resync(ctx, w, s) })
		}
	}
}

// age updates the metric of the age of the sources.
func (f *Factory) age(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		f.mu.RLock()
		for _, s := range f.sources {
			s.Age()
		}
		f.mu.RUnlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// BeginCut holds all watches between two deltas and takes their changes since the last cut, see
// [Watch.Dirty]. State that is collected before [Cut.End] (the backlogs of the routes) agrees with
// these changes. No Watch may be called until then.
func (f *Factory) BeginCut() *Cut {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return persist.BeginCut(statesOf(f.watches))
}

// Saved calls [Watch.Saved] of each watch.
func (f *Factory) Saved() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, w := range f.watches {
		w.Saved()
	}
}

// AwaitLoaded waits until the watches have restored all their saved objects, see [Restored.Later],
// or until ctx is done.
func (f *Factory) AwaitLoaded(ctx context.Context) error {
	f.mu.RLock()
	watches := f.watches
	f.mu.RUnlock()
	for _, w := range watches {
		if !w.state.Loader().Wait(ctx) {
			return ctx.Err()
		}
	}
	return nil
}

func statesOf(watches []*Watch) []*persist.State {
	states := make([]*persist.State, len(watches))
	for i, w := range watches {
		states[i] = w.state
	}
	return states
}

// Status is the status of a source.
type Status = apply.Status

// Statuses returns the status of every source, in the order of their names.
func (f *Factory) Statuses() []Status {
	f.mu.RLock()
	all := make([]Status, 0, len(f.sources))
	for _, s := range f.sources {
		all = append(all, s.Status())
	}
	f.mu.RUnlock()
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Source, b.Source) })
	return all
}

// Status returns the status of a source.
func (f *Factory) Status(name string) (status Status, ok bool) {
	s, ok := f.source(name)
	if !ok {
		return Status{Source: name, Reason: "there is no such source"}, false
	}
	return s.Status(), true
}

// Applied returns the resourceVersions up to which the watches of a source are applied, see
// [Watch.Applied].
func (f *Factory) Applied(name string) (versions []string) {
	s, ok := f.source(name)
	if !ok {
		return nil
	}
	for _, w := range s.watches {
		versions = append(versions, w.Applied())
	}
	return versions
}

// Synced returns a channel that is closed once the source has all its objects and the deltas of its
// first list are admitted; nil if there is no such source.
func (f *Factory) Synced(name string) <-chan struct{} {
	s, ok := f.source(name)
	if !ok {
		return nil
	}
	return s.Synced()
}

// source is a source with its watches.
type source struct {
	*apply.Source

	config  Source
	watches []*Watch // not changed once the factory runs
}

func (f *Factory) source(name string) (*source, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s, ok := f.sources[name]
	return s, ok
}

func (f *Factory) newSource(config Source) *source {
	return &source{Source: apply.NewSource(config.Name, f.cfg.Metrics), config: config}
}

func (s *source) add(w *Watch) {
	s.watches = append(s.watches, w)
	s.Add(w.health)
	if w.finder != nil {
		s.Select(w.finder.selection, w.finder.health)
	}
}
