package informer

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// Store is where a watch keeps its objects. Put and Delete are called under the watch's cut lock, by one goroutine at a time; Get may
// be called at the same time by others.
type Store interface {
	Get(key event.Key) *event.Object // nil: there is none
	Put(o *event.Object)             // adds or replaces
	Delete(key event.Key)
}

// Contents is the other half of a store: everything in it, in any order, as it was when the iteration began.
type Contents interface {
	All() iter.Seq[*event.Object]
}

// Cache is both halves.
type Cache interface {
	Store
	Contents
}

// Downstream takes the deltas. It must be safe for concurrent use; deltas of one watch come one after the other.
type Downstream interface {
	// Admit decides who wants the delta, and waits, no longer than ctx, until all of them have room for it. commit then hands it
	// to them; it is called under the cut lock and must not block. A nil commit: nobody wants it. An error means that ctx is done.
	// The delta's Durable is set only when commit is called.
	Admit(ctx context.Context, d *event.Delta) (commit func(), err error)
}

// Config is what a Factory needs.
type Config struct {
	Client     *Client
	Cluster    string // name of the cluster, part of every event
	Metrics    *metrics.Metrics
	Log        *slog.Logger
	Downstream Downstream

	// Gate is set where there is a checkpoint. It is called with the [Spec.ID] of a watch and with an object whose identity is not
	// known to be on disk, before the first delta of it that somebody wants is committed. The channel that it returns becomes
	// [event.Delta.Durable] of this delta and of those that follow it; it is to be closed when the identity is on disk. It is
	// called under the cut lock, so it must not block and not call a Watch or the Factory. nil: nothing is kept for a checkpoint.
	Gate func(watchID string, key event.Key, uid string) <-chan struct{}
	// PageSize makes every list come in pages of that many objects, and no other way. 0: the Reflector decides, which streams
	// where the API server can and lists else.
	PageSize int64
	// Backoff is between tries. Defaults to 500ms to 30s.
	Backoff Backoff
	// ProbeInterval is within what time the API server is asked again, for each watch, whether it has gone back in time or is another
	// cluster's. Defaults to a minute.
	ProbeInterval time.Duration
	// Silence is how long a watch over HTTP/1.1 may bring nothing, not even a bookmark, before it is opened anew. API servers send
	// bookmarks about once a minute, so most of those who end so were in order, which costs three small requests. Over HTTP/2, where
	// pings notice a dead connection, it is four times that, for what answers pings and passes nothing on. Defaults to 45s.
	Silence time.Duration
	// Clock is what deltas are dated by. What has to do with the API server takes real time. nil: the real one.
	Clock timer.Clock
	// BookmarkWait is how long a stream of initial events may be silent before it is taken for one that never says where they end.
	// Defaults to 30s.
	BookmarkWait time.Duration
}

// Factory runs watches and knows how they are.
type Factory struct {
	cfg      Config
	census   *census
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
	cfg.ProbeInterval = cmp.Or(cfg.ProbeInterval, time.Minute)
	if cfg.Clock == nil {
		cfg.Clock = timer.Real()
	}
	return &Factory{cfg: cfg, sources: make(map[string]*source), census: newCensus(cfg.Client, cfg.Log)}
}

// Watch adds a watch, whose deltas are put through once for each of the sources. A source may have several watches. All watches
// are added before Run; later there is [Factory.Reconfigure]. Where there is a checkpoint their Specs differ.
func (f *Factory) Watch(spec Spec, store Cache, sources ...Source) *Watch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.newWatch(spec, store)
	var all []*source
	for _, config := range sources {
		s := f.sources[config.Name]
		if s == nil {
			s = f.newSource(config)
			f.sources[config.Name] = s
		}
		s.watches = append(s.watches, w)
		all = append(all, s)
	}
	w.sources.Store(&all)
	f.watches = append(f.watches, w)
	return w
}

func (f *Factory) newWatch(spec Spec, store Cache) *Watch {
	w := &Watch{factory: f, spec: spec, id: spec.ID(), store: store, log: f.cfg.Log, name: nameOf(&spec), order: newTurn()}
	if gate := f.cfg.Gate; gate != nil {
		w.ledger = newLedger(func(key event.Key, uid string) <-chan struct{} { return gate(w.id, key, uid) })
	}
	w.resource.Store(f.resource(&spec, ""))
	w.sources.Store(&[]*source{})
	return w
}

func (f *Factory) resource(spec *Spec, kind string) *event.Resource {
	return &event.Resource{GroupVersionResource: spec.Resource, Cluster: f.cfg.Cluster, Kind: kind}
}

// Resource returns what a watch of that Spec watches, as its objects have it if there is such a watch.
func (f *Factory) Resource(spec Spec) *event.Resource {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, w := range f.watches {
		if w.spec == spec {
			return w.Resource()
		}
	}
	return f.resource(&spec, "")
}

// Cut calls read at a moment when the store of the watch of that Spec is what it was at the resourceVersion that is returned (see
// [Watch.Cut]; while a list is being applied, parts of it are newer). read must be quick: the watch waits. ok is false, and read is not
// called, if there is no such watch.
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
	name := resourceName(spec.Resource)
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

func resourceName(gvr schema.GroupVersionResource) string {
	return (&event.Resource{GroupVersionResource: gvr}).String()
}

// Run runs the watches until ctx is done, and returns once all of them have stopped, which takes no longer than the store and
// Downstream do.
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
	for _, s := range *w.sources.Load() {
		if s.Resync > 0 && w.resyncs[s] == nil {
			ctx, stop := context.WithCancel(f.ctx)
			if w.resyncs == nil {
				w.resyncs = make(map[*source]context.CancelFunc)
			}
			w.resyncs[s] = stop
			f.running.Go(func() { w.resync(ctx, s) })
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
			s.age()
		}
		f.mu.RUnlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
