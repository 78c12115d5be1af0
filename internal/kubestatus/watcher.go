package kubestatus

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

const group = crds.Group

// settle is the time in which further changes join the first one.
const settle = 100 * time.Millisecond

// The rate of reloads that objects cause, in milliseconds of work: a fifth of the time after the
// first ones. So one that changes all the time delays others by a few seconds at most, and the
// router has time for deltas.
const (
	workPerSecond = 200
	workAtOnce    = 20_000
	workAtLeast   = 200 // of each reload
)

// Config has the dependencies of a Watcher.
type Config struct {
	Client  *informer.Client
	Cluster string // its name
	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// Watched are the namespaces whose objects are watched.
type Watched struct {
	Routes        []string // namespaces; an empty name: all; nil: no Routes are watched
	ClusterRoutes bool
}

// Watcher has the present objects. It is safe for concurrent use, except for Follow and Stop.
type Watcher struct {
	cfg     Config
	changed chan struct{}
	work    *rate.Limiter

	watched Watched
	stop    func() // of the running watches; nil: none run

	mu      sync.Mutex
	factory *informer.Factory // of the running watches; nil: none run
	objects map[Key]*Object
	listed  map[Key]bool // the objects that a running watch has found; nil: all are
	pending *time.Timer  // fires when changes are reported; nil: there are none
}

// New returns a Watcher with the objects of the last run, which count until the API server has
// answered.
func New(cfg Config, last []*Object) *Watcher {
	w := &Watcher{cfg: cfg, changed: make(chan struct{}, 1), work: rate.NewLimiter(workPerSecond, workAtOnce), objects: make(map[Key]*Object)}
	for _, o := range last {
		w.objects[o.Key] = o
	}
	return w
}

// Changed receives a value after objects were added, deleted, or got another spec.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Objects returns the present objects, the oldest ones first.
func (w *Watcher) Objects() []*Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(maps.Values(w.objects), byAge)
}

// Statuses returns the status of the watches.
func (w *Watcher) Statuses() []informer.Status {
	w.mu.Lock()
	factory := w.factory
	w.mu.Unlock()
	if factory == nil {
		return nil
	}
	return factory.Statuses()
}

// Follow watches the given objects from now on. Others are gone at once.
func (w *Watcher) Follow(ctx context.Context, watched Watched) {
	if w.stop != nil && watched.ClusterRoutes == w.watched.ClusterRoutes && slices.Equal(watched.Routes, w.watched.Routes) {
		return
	}
	w.Stop()
	w.watched = watched
	w.mu.Lock()
	maps.DeleteFunc(w.objects, func(k Key, _ *Object) bool { return !watched.has(k) })
	w.listed = make(map[Key]bool)
	w.mu.Unlock()
	all := watched.namespaces()
	if len(all) == 0 {
		return
	}
	factory := informer.New(informer.Config{
		Client: w.cfg.Client, Cluster: w.cfg.Cluster, Metrics: w.cfg.Metrics, Log: w.cfg.Log, Downstream: nowhere{},
	})
	var synced []<-chan struct{}
	for kind, namespaces := range all {
		resource := schema.GroupVersionResource{Group: group, Version: crds.Version, Resource: kind.plural()}
		for _, namespace := range namespaces {
			factory.Watch(informer.Spec{Resource: resource, Namespace: namespace}, store{index.NewStore(), w, kind}, informer.Source{Name: kind.source()})
		}
		synced = append(synced, factory.Synced(kind.source()))
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	w.mu.Lock()
	w.factory = factory
	w.mu.Unlock()
	running.Go(func() { factory.Run(ctx) })
	running.Go(func() { w.await(ctx, synced) })
	w.stop = func() { cancel(); running.Wait() }
}

// Stop ends the watches. The objects stay, and a change that waits is still reported.
func (w *Watcher) Stop() {
	if w.stop != nil {
		w.stop()
		for kind := range w.watched.namespaces() {
			w.cfg.Metrics.ForgetSource(kind.source())
		}
	}
	w.mu.Lock()
	w.factory = nil
	w.mu.Unlock()
	w.stop = nil
}

func (w Watched) has(k Key) bool {
	if k.Kind == clusterRoute {
		return w.ClusterRoutes
	}
	return slices.Contains(w.Routes, "") || slices.Contains(w.Routes, k.Namespace)
}

func (w Watched) namespaces() map[Kind][]string {
	all := make(map[Kind][]string)
	if len(w.Routes) > 0 {
		all[Route] = w.Routes
	}
	if w.ClusterRoutes {
		all[clusterRoute] = []string{""}
	}
	return all
}

// await waits until all objects are listed. Then those of the last run that were not found are
// gone.
func (w *Watcher) await(ctx context.Context, synced []<-chan struct{}) {
	for _, done := range synced {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.objects)
	maps.DeleteFunc(w.objects, func(k Key, _ *Object) bool { return !w.listed[k] })
	w.listed = nil
	if len(w.objects) != before {
		w.touch()
	}
}

// Worked takes the duration of the work after a change. Long work delays the next changes.
func (w *Watcher) Worked(d time.Duration) {
	if more := min(int(d.Milliseconds()), workAtOnce) - workAtLeast; more > 0 {
		w.work.ReserveN(time.Now(), more)
	}
}

// touch reports a change after a moment, or when there is time for its work. mu is held.
func (w *Watcher) touch() {
	if w.pending != nil {
		return
	}
	wait := max(settle, w.work.ReserveN(time.Now(), workAtLeast).Delay())
	w.pending = time.AfterFunc(wait, func() {
		w.mu.Lock()
		w.pending = nil
		w.mu.Unlock()
		select {
		case w.changed <- struct{}{}:
		default: // one is on its way
		}
	})
}

func (w *Watcher) put(kind Kind, o *event.Object) {
	key := Key{kind, o.Key().Namespace, o.Key().Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	former := w.objects[key]
	now, err := parse(kind, o.JSON(), former)
	if err != nil {
		w.cfg.Log.Warn("an object is ignored, because it is not as its definition says: apply the definitions of router crds again", "object", key.String(), "err", err)
		return
	}
	w.objects[key] = now
	if w.listed != nil {
		w.listed[key] = true
	}
	if !sameSpec(former, now) {
		w.touch()
	}
}

func (w *Watcher) remove(key Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.objects[key] != nil {
		delete(w.objects, key)
		w.touch()
	}
}

// nowhere is the receiver of the deltas: the objects themselves matter.
type nowhere struct{}

func (nowhere) Admit(context.Context, *event.Delta) (event.Admission, error) { return nil, nil }

// store is the cache of one watch. It passes the changes on.
type store struct {
	*index.Store

	w    *Watcher
	kind Kind
}

// Put implements [informer.Cache].
func (s store) Put(o *event.Object) {
	s.Store.Put(o)
	s.w.put(s.kind, o)
}

// Delete implements [informer.Cache].
func (s store) Delete(key event.Key) {
	s.Store.Delete(key)
	s.w.remove(Key{s.kind, key.Namespace, key.Name})
}
