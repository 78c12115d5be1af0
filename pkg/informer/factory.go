package informer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

type (
	// Cache is where a watch keeps its objects. Put and Delete are called under the watch's cut
	// lock, by one goroutine at a time; Get may be called at the same time by others.
	Cache = persist.Cache
	// Changes is what changed in a watch between two calls of Dirty.
	Changes = persist.Changes
	// Incarnation is one object of those that have had a name.
	Incarnation = persist.Incarnation
	// Restored is what was saved of a watch: the sum of its [Changes].
	Restored = persist.Restored
	// Saved is where a watch finds what was saved of its objects and not restored yet.
	Saved = persist.Saved
)

// Downstream takes the deltas. It must be safe for concurrent use; deltas of one watch come one
// after the other.
type Downstream interface {
	// Admit decides who wants the delta, and waits, no longer than ctx, until all of them have room
	// for it. It returns nil if nobody does. An error means that ctx is done.
	Admit(ctx context.Context, d *event.Delta) (event.Admission, error)
}

// Config is what a Factory needs.
type Config struct {
	Client     *Client
	Cluster    string // name of the cluster, part of every event
	Metrics    *metrics.Metrics
	Log        *slog.Logger
	Downstream Downstream

	// Gate is set where there is a checkpoint. It is called with the [Spec.ID] of a watch and with
	// an object that no cut on disk is known to have, before a delta of it that somebody wants is
	// committed: with the first state, and with each that differs from the one before. It is called
	// with an object that a cut has where a delta has transit.State.Enters. The channel that it
	// returns becomes transit.State.Durable of this delta and of those that follow it; it is to be
	// closed when that state is on disk. It is called under the cut lock, so it must not block and
	// not call a Watch or the Factory. nil: nothing is kept for a checkpoint.
	Gate func(watchID string, o *event.Object) <-chan struct{}
	// PageSize makes every list come in pages of that many objects, and no other way. 0: the
	// Reflector decides, which streams where the API server can and lists else.
	PageSize int64
	// Backoff is between tries. Defaults to 500ms to 30s.
	Backoff backoff.Policy
	// ProbeInterval is within what time the API server is asked again, for each watch, whether it
	// has gone back in time or is another cluster's, and whether it would still let the watch be
	// opened. Defaults to half a minute.
	ProbeInterval time.Duration
	// Silence is how long a watch over HTTP/1.1 may bring nothing, not even a bookmark, before it
	// is opened anew. API servers send bookmarks about once a minute, so most of those who end so
	// were in order, which costs three small requests. Over HTTP/2, where pings notice a dead
	// connection, it is four times that, for what answers pings and passes nothing on. Defaults to
	// 45s.
	Silence time.Duration
	// Clock is what deltas are dated by. What has to do with the API server takes real time. nil:
	// the real one.
	Clock timer.Clock
	// BookmarkWait is how long a stream of initial events may be silent before it is taken for one
	// that never says where they end. Defaults to 30s.
	BookmarkWait time.Duration
}

// Factory runs watches and knows how they are.
type Factory struct {
	cfg      Config
	identity *client.IdentityCache
	changing sync.Mutex // held by Reconfigure

	mu      sync.RWMutex // guards what follows
	watches []*Watch
	sources map[string]*source
	epoch   int             // how often there was a Reconfigure
	ctx     context.Context //nolint:containedctx // of Run, for watches that come later; nil: it does not run
	running sync.WaitGroup
}

// New returns a Factory without watches.
func New(cfg Config) *Factory {
	cfg.Backoff.Min = cmp.Or(cfg.Backoff.Min, 500*time.Millisecond)
	cfg.Backoff.Max = cmp.Or(cfg.Backoff.Max, 30*time.Second)
	cfg.BookmarkWait = cmp.Or(cfg.BookmarkWait, 30*time.Second)
	cfg.Silence = cmp.Or(cfg.Silence, 45*time.Second)
	cfg.ProbeInterval = cmp.Or(cfg.ProbeInterval, 30*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = timer.Real()
	}
	f := &Factory{cfg: cfg, sources: make(map[string]*source)}
	if cfg.Client != nil { // one whose watches are fed by hand has none
		f.identity = client.NewIdentityCache(cfg.Client.api, cfg.Log)
	}
	return f
}

// Watch adds a watch, whose deltas are put through once for each of the sources. A source may have
// several watches. All watches are added before Run; later there is [Factory.Reconfigure]. Where
// there is a checkpoint their Specs differ.
func (f *Factory) Watch(spec Spec, store Cache, sources ...Source) *Watch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.newWatch(spec, store, 0)
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
	return w
}

// Resource returns what a watch of that Spec watches, as its objects have it if there is such a
// watch.
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

// Cut calls read at a moment when the store of the watch of that Spec is what it was at the
// resourceVersion that is returned (see [Watch.Cut]; while a list is being applied, parts of it are
// newer). read must be quick: the watch waits. ok is false, and read is not called, if there is no
// such watch.
func (f *Factory) Cut(spec Spec, read func()) (fed string, ok bool) {
	f.mu.RLock()
	i := slices.IndexFunc(f.watches, func(w *Watch) bool { return w.spec == spec })
	if i < 0 {
		f.mu.RUnlock()
		return "", false
	}
	w := f.watches[i]
	f.mu.RUnlock()
	w.Cut(func(version string, _ bool) {
		fed = version
		read()
	})
	return fed, true
}

// nameOf names a watch in logs.
func nameOf(spec *Spec) string {
	name := client.ResourceName(spec.Resource)
	if spec.Namespace != "" {
		name += " in " + spec.Namespace
	}
	if spec.LabelSelector != "" {
		name += " with labels " + spec.LabelSelector
	}
	if spec.FieldSelector != "" {
		name += " with fields " + spec.FieldSelector
	}
	return name
}

// Run runs the watches until ctx is done, and returns once all of them have stopped, which takes no
// longer than the store and Downstream do.
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

// age keeps the metric of how old the sources' news are.
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

func (f *Factory) admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	return f.cfg.Downstream.Admit(ctx, d)
}

// Dirty hands over what changed in each watch, see [Watch.Dirty], all at one moment: it calls also
// while it holds all of them there, so that what is collected in it (the backlogs of the routes)
// agrees with what Dirty returns. also must not call a Watch.
func (f *Factory) Dirty(also func()) []Changes {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return persist.HandOver(statesOf(f.watches), also)
}

// Saved calls [Watch.Saved] of each watch.
func (f *Factory) Saved() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, w := range f.watches {
		w.Saved()
	}
}

// AwaitLoaded waits until the watches have restored all that was saved of them, see
// [Restored.Later], or until ctx is done.
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

// Status says how a source is.
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

// Status returns the status of the source of that name.
func (f *Factory) Status(name string) (status Status, ok bool) {
	s, ok := f.source(name)
	if !ok {
		return Status{Source: name, Reason: "there is no such source"}, false
	}
	return s.Status(), true
}

// Synced returns a channel that is closed once the source has had all its objects, and the deltas
// of its first list were all put through; nil if there is no such source.
func (f *Factory) Synced(name string) <-chan struct{} {
	s, ok := f.source(name)
	if !ok {
		return nil
	}
	return s.Synced()
}

// source is one source and the watches that it has.
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
}
