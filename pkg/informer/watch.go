package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// absentPoll is the longest time between two looks for a resource that does not exist yet.
const absentPoll = 5 * time.Second

// confirmations is how often in a row discovery has to say that a resource is gone before its objects are deleted: an API server
// that is starting may not know all of its resources yet.
const confirmations = 3

// Watch is one watch: a Reflector, what it feeds, and how far that got.
type Watch struct {
	factory *Factory
	spec    Spec
	id      string // of spec
	name    string // in logs
	store   Cache
	sources atomic.Pointer[[]*source]
	epoch   int // of the factory, when the watch was added; -1: in a former run
	log     *slog.Logger

	resource   atomic.Pointer[event.Resource]
	namespaced atomic.Bool
	heardAt    atomic.Int64 // nanoseconds since 1970; 0: never
	is         state
	// noInitialEvents: the API server cannot stream them. unnamed: since the last list, something came of which not even the
	// name could be read.
	noInitialEvents, unnamed atomic.Bool
	// listed: there was a complete list. absent: the resource was confirmed not to exist before. For run and what it calls.
	listed, absent bool
	// resumable: the first list need not be asked for, the store has what was saved. resumed: the Reflector is about to replace
	// the store by an empty list that stands for it. latest: the next list is the truth, also where it is older than the store.
	resumable, resumed, latest atomic.Bool
	// bare: some of the objects in the store were restored as identities only, and the next list fills them in. Until then, and
	// for reading, as listed.
	bare    bool
	loading *loading // nil: the store has all that was saved
	applied int      // changes, ever
	relists relists
	// For the factory, under its lock. stop is nil before the watch runs.
	stop    context.CancelFunc
	stopped chan struct{}
	resyncs map[*source]context.CancelFunc
	// stream is the watch that is open; nil: none. suspect is what was found out about it that makes it useless.
	stream  atomic.Pointer[reader]
	suspect atomic.Pointer[error]
	// running is held for reading by everything that may still run when the Reflector has returned.
	running sync.RWMutex

	// order is held while a delta is admitted and applied: one at a time, the Reflector's and those of a resync.
	order   turn
	commits []func()
	wanted  []*event.Delta // what commits are about

	// cut guards the store against the rest: what the routes owe, fed, and what is kept for the checkpoint.
	cut       sync.Mutex
	cluster   string  // that the objects and intents are of; empty: not known
	listing   string  // the cluster that is being listed
	fed       string  // the resourceVersion that the store and the routes have seen everything up to; see also neverThere
	relisting bool    // some of a list was applied and some not
	ledger    *ledger // nil: there is no checkpoint
	// intents are incarnations that a former run may have delivered deltas of, by uid. Only the watch's own goroutine changes them.
	intents map[string]intent
	told    string // where the API server was when the watch was resumed; empty: it was not
}

// Spec returns what is watched.
func (w *Watch) Spec() Spec { return w.spec }

// Fed returns the resourceVersion up to which everything was applied; empty before the first list, and 0 if the resource was found
// not to exist before it.
func (w *Watch) Fed() string {
	w.cut.Lock()
	defer w.cut.Unlock()
	return w.fed
}

// Cut calls f at a moment when the store, what was committed downstream and fed agree with each other, and holds the watch there
// while f runs. relisting: some of a list is applied and some is not, so fed alone does not say how to go on.
func (w *Watch) Cut(f func(fed string, relisting bool)) {
	w.cut.Lock()
	defer w.cut.Unlock()
	f(w.fed, w.relisting)
}

// run watches until ctx is done.
func (w *Watch) run(ctx context.Context) {
	defer w.load(ctx).Wait()
	pause := pause{Backoff: w.factory.cfg.Backoff}
	for w.resolve(ctx) {
		began := time.Now()
		w.reflect(ctx)
		if time.Since(began) > time.Minute {
			pause.next = 0
		}
		if !w.relistAsked() && pause.wait(ctx, 0) != nil {
			return
		}
	}
}

// resolve waits until discovery knows the resource. It returns false when ctx is done.
func (w *Watch) resolve(ctx context.Context) bool {
	backoff := w.factory.cfg.Backoff
	pause, gone := pause{Backoff: backoff}, 0
	for ctx.Err() == nil {
		found, err := w.factory.cfg.Client.discover(ctx, w.spec.Resource)
		if err == nil && w.spec.Namespace != "" && !found.namespaced {
			err = errors.New("the resource has no namespaces: leave namespaces out")
		}
		if err == nil {
			w.reached()
			w.resource.Store(w.factory.resource(&w.spec, found.kind))
			w.namespaced.Store(found.namespaced)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		pause.Max = backoff.Max
		if errors.Is(err, errAbsent) {
			pause.Max = min(backoff.Max, absentPoll)
			if gone++; gone >= confirmations || w.knowsNothing() {
				w.vanish(ctx)
			}
		} else {
			gone = 0
		}
		w.failing(fmt.Errorf("resource %s: %w", resourceName(w.spec.Resource), err))
		if pause.wait(ctx, retryAfter(err)) != nil {
			return false
		}
	}
	return false
}

// knowsNothing reports whether there never was a list, not even the beginning of one.
func (w *Watch) knowsNothing() bool {
	for range w.store.All() {
		return false
	}
	return w.Fed() == "" && len(w.intents) == 0
}

// reflect runs a Reflector until ctx is done, the API server no longer knows the resource, or a list is asked for.
func (w *Watch) reflect(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	w.beginRelists(gone)
	logger := klogTo(w.log)
	r := cache.NewReflectorWithOptions(&listerWatcher{w, gone}, nil, &reflectorStore{w, ctx}, cache.ReflectorOptions{
		Name: w.name, TypeDescription: resourceName(w.spec.Resource), Logger: &logger, Clock: stopClock{ctx: ctx},
		Backoff: &wait.Backoff{
			Duration: w.factory.cfg.Backoff.Min, Cap: w.factory.cfg.Backoff.Max, Steps: 40, Factor: 2, Jitter: 0.5,
		},
	})
	r.WatchListPageSize = w.factory.cfg.PageSize
	var patrol sync.WaitGroup
	patrol.Go(func() { w.patrol(ctx) })
	r.RunWithContext(klog.NewContext(ctx, logger))
	gone()
	patrol.Wait()
	w.running.Lock() // until requests that the Reflector did not wait for have ended
	defer w.running.Unlock()
}

// leftOutOfList reports an item that could not be read, and returns what stands for it in the list.
func (w *Watch) leftOutOfList(e *objectError) runtime.Object {
	w.leftOut(e)
	o := e.placeholder(w.resource.Load())
	if o == nil {
		w.unnamed.Store(true)
	}
	return o
}

// known returns the object that the store has, if o is the same, so that a relist does not hold everything twice.
func (w *Watch) known(o *event.Object) *event.Object {
	if old := w.store.Get(o.Key()); old != nil && o.ResourceVersion() != "" && event.Same(old, o) && !w.differs(old, o) {
		return old
	}
	return o
}

// differs reports whether two objects of one uid and resourceVersion are not the same all the same: a restored backup gives versions
// out for the second time, and of some objects (bare) only the identity was saved. Where only identities are kept nobody can tell.
func (w *Watch) differs(old, o *event.Object) bool {
	return !w.spec.identityOnly() && old.Raw() != o.Raw()
}

// statusOf makes an error of the object of an ERROR event.
func statusOf(o runtime.Object) error { return apierrors.FromObject(o) }
