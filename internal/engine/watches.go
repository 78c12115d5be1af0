package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// maxChanges is the largest number of changes of other sources whose dependents are not known yet.
// With more of them all objects of the route become due, which covers every change.
const maxChanges = 10_000

// watchedRoute runs the `watches` of a route, which make some of its objects due when objects of
// other sources change. Each change waits until the expression has returned its dependents; each
// dependent is due until it is emitted once more: one object at a time, when the route has room.
// Both are in the checkpoint, see saved.go, so a restart loses none of them.
type watchedRoute struct {
	route    *compile.Route
	lookups  []string       // the sources of the expressions' look-ups
	cache    *index.Catalog // has these and the sources of the route
	complain sync.Once

	mu            sync.Mutex
	last          uint64 // the number of the last change
	changes       []change
	order         []cel.Ref // the due objects, without duplicates
	due           map[cel.Ref]struct{}
	putting       *cel.Ref      // the object that is being emitted, no longer in order
	pruned        int           // the number of due objects after the last prune
	active        bool          // a change waits, or an object is due or being emitted
	wake          chan struct{} // has a token when a change may wait
	more          chan struct{} // has a token when an object may be due
	stop          context.CancelFunc
	changeJournal journal[uint64]  // of changes, by their numbers
	dueJournal    journal[cel.Ref] // of due objects and the one being emitted
}

// change is a change of an object of another source.
type change struct {
	n     uint64
	delta *event.Delta // nil: all objects of the route depend on it
}

// watchesConfig has the dependencies of Watches; a reload does not change them.
type watchesConfig struct {
	Pipeline *pipeline.Pipeline
	Factory  *informer.Factory
	Taps     *inspect.Taps // nil: there are no taps
	Metrics  *metrics.Metrics
	Log      *slog.Logger
	Clock    timer.Clock
	Saved    bool // pending work survives the process
}

// Watches runs the watches of all routes. It is safe for concurrent use.
type Watches struct {
	deps     watchesConfig
	bySource atomic.Pointer[map[string][]*watchedRoute]

	mu      sync.Mutex // the lock of a Route may be taken under it
	all     []*watchedRoute
	retired []checkpoint.RouteCut // for the next cut, of routes that no longer run
	// for the next cut after Use: the restored work of routes without watches
	retiring []checkpoint.RouteCut
	ctx      context.Context //nolint:containedctx // of start, for routes that come later
	active   int
	quiet    chan struct{} // closed when none is active
	workers  sync.WaitGroup
}

// newWatches returns Watches without routes; Use adds them.
func newWatches(deps watchesConfig) *Watches {
	q := &Watches{deps: deps}
	q.bySource.Store(&map[string][]*watchedRoute{})
	return q
}

// newWatchedRoute makes the watchedRoute of a configured route, without pending work. cache
// returns a catalog of some sources; saved: pending work goes to the checkpoint.
func newWatchedRoute(p *compile.Route, saved bool, cache func(sources []string) *index.Catalog) *watchedRoute {
	q := &watchedRoute{
		route: p, due: make(map[cel.Ref]struct{}), wake: make(chan struct{}, 1), more: make(chan struct{}, 1),
	}
	for _, program := range p.WatchPrograms {
		q.lookups = append(q.lookups, program.Sources()...)
	}
	q.cache = cache(slices.Compact(slices.Sorted(slices.Values(slices.Concat(q.lookups, p.From)))))
	if saved {
		q.changeJournal, q.dueJournal = newJournal[uint64](), newJournal[cel.Ref]()
	}
	return q
}

// Use replaces the running routes. all has those with watches, routes all configured ones.
// Pending work is kept under the id of its route. Use does not block.
func (q *Watches) Use(all []*watchedRoute, routes []compile.Route) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bySource := make(map[string][]*watchedRoute)
	for _, next := range all {
		for source := range next.route.WatchPrograms {
			bySource[source] = append(bySource[source], next)
		}
	}
	// New changes go to the new routes from here on; the work of the old ones follows.
	old := q.all
	q.all = all
	q.retired, q.retiring = append(q.retired, q.retiring...), nil
	q.bySource.Store(&bySource)
	for _, was := range old {
		if was.stop != nil {
			was.stop()
		}
		q.replace(was, all, routes)
	}
	for _, one := range all {
		q.signal(one)
	}
	if q.ctx != nil { // Start runs the first ones
		q.run()
	}
}

// replace moves the pending work of a Route that no longer runs to the Route of the same id. mu is
// held.
func (q *Watches) replace(was *watchedRoute, all []*watchedRoute, routes []compile.Route) {
	was.mu.Lock()
	defer was.mu.Unlock()
	if was.active {
		was.active = false
		q.idle()
	}
	q.deps.Metrics.WatchesChanges.DeleteLabelValues(was.route.Name)
	q.deps.Metrics.WatchesObjects.DeleteLabelValues(was.route.Name)
	id := was.route.ID
	if i := slices.IndexFunc(all, func(next *watchedRoute) bool { return next.route.ID == id }); i >= 0 {
		all[i].takeOver(was)
		was.clear()
		return
	}
	// A route without watches needs no saved work. That of a removed route stays on disk, and is
	// restored when the route returns.
	if slices.ContainsFunc(routes, func(p compile.Route) bool { return p.ID == id }) {
		was.clear()
		was.changeJournal.removeAll()
		was.dueJournal.removeAll()
	}
	q.retired = append(q.retired, was.cut()...)
	was.clear()
}

// clear removes all pending work. mu is held.
func (one *watchedRoute) clear() {
	one.changes, one.order, one.putting = nil, nil, nil
	clear(one.due)
}

// takeOver takes the pending work of another Route, whose lock is held.
func (one *watchedRoute) takeOver(was *watchedRoute) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.last = max(one.last, was.last)
	one.changeJournal.merge(was.changeJournal)
	one.dueJournal.merge(was.dueJournal)
	for _, c := range was.changes {
		if one.wants(c.delta) {
			one.wait(c.delta)
		}
		one.changeJournal.remove(c.n)
	}
	if was.putting != nil {
		one.enqueue(*was.putting)
	}
	for _, ref := range was.order {
		one.enqueue(ref)
	}
}

// Start runs the workers until ctx is done.
func (q *Watches) Start(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ctx = ctx
	q.run() //nolint:contextcheck // the context of Start
}

// run starts the workers of all Routes. mu is held.
func (q *Watches) run() {
	for _, one := range q.all {
		ctx, stop := context.WithCancel(q.ctx)
		one.stop = stop
		q.workers.Go(func() { q.resolveChanges(ctx, one) })
		q.workers.Go(func() { q.putThroughDue(ctx, one) })
	}
}

// Wait waits for the workers, whose context is done.
func (q *Watches) Wait() { q.workers.Wait() }

// Finish waits for the workers, whose context is done, and logs their pending work.
func (q *Watches) Finish() {
	q.workers.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.all {
		if one.stop != nil {
			one.stop()
		}
		one.mu.Lock()
		left := []any{slog.String("route", one.route.Name), slog.Int("changes", len(one.changes)), slog.Int("objects", one.pending())}
		if one.active && q.deps.Saved {
			q.deps.Log.Info("stopped with pending work of watches; the next start resumes it", left...)
		} else if one.active {
			q.deps.Log.Warn("stopped with pending work of watches, which is lost without state.dir; after the start, run router resync -route", left...)
		}
		one.mu.Unlock()
	}
}

// After returns an admission that also records the delta, if the watches of a route want it.
func (q *Watches) After(d *event.Delta, admission event.Admission) event.Admission {
	if q == nil || len((*q.bySource.Load())[d.Source]) == 0 || d.Initial || d.Op == event.Sync {
		return admission
	}
	return &watchedDelta{admission, q, d}
}

// watchedDelta is the admission of a delta that the watches of a route want; others is that of the
// routes that receive it; nil: none does.
type watchedDelta struct {
	others  event.Admission
	watches *Watches
	delta   *event.Delta
}

// Commit implements event.Admission.
func (w *watchedDelta) Commit() {
	if w.others != nil {
		w.others.Commit()
	}
	q := w.watches
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range (*q.bySource.Load())[w.delta.Source] {
		if one.wants(w.delta) {
			q.put(one, w.delta)
		}
	}
}

// wants reports whether a change concerns the watches of the route: they have an expression for its
// source, and the route sees its object. An include must not learn of other objects.
func (one *watchedRoute) wants(d *event.Delta) bool {
	return d == nil || one.route.WatchPrograms[d.Source] != nil && one.route.Scope().Sees(d.Object().Home())
}

// put adds a waiting change to a Route. mu is held.
func (q *Watches) put(one *watchedRoute, d *event.Delta) {
	one.mu.Lock()
	one.wait(d)
	one.mu.Unlock()
	q.signal(one)
}

// wait adds a waiting change; if there are too many, it replaces them by one that everything
// depends on. mu is held.
func (one *watchedRoute) wait(d *event.Delta) {
	if len(one.changes) >= maxChanges {
		for _, c := range one.changes {
			one.changeJournal.remove(c.n)
		}
		one.changes, d = nil, nil
	}
	one.last++
	one.changes = append(one.changes, change{one.last, d})
	one.changeJournal.add(one.last)
}

// enqueue makes an object due. mu is held.
func (one *watchedRoute) enqueue(ref cel.Ref) {
	if _, known := one.due[ref]; known {
		return
	}
	one.due[ref] = struct{}{}
	one.order = append(one.order, ref)
	one.dueJournal.add(ref)
}

// pending returns the number of due objects. mu is held.
func (one *watchedRoute) pending() int {
	if one.putting != nil {
		return len(one.order) + 1
	}
	return len(one.order)
}

// signal wakes the workers of a Route that has work, or records that it has none. mu is held.
func (q *Watches) signal(one *watchedRoute) {
	one.mu.Lock()
	defer one.mu.Unlock()
	active := len(one.changes) > 0 || one.pending() > 0
	if active && !one.active {
		if q.active++; q.active == 1 { // Settle waits for it
			q.quiet = make(chan struct{})
		}
	}
	if !active && one.active {
		q.idle()
	}
	one.active = active
	if slices.Contains(q.all, one) { // otherwise another Route counts for the route
		q.deps.Metrics.WatchesChanges.WithLabelValues(one.route.Name).Set(float64(len(one.changes)))
		q.deps.Metrics.WatchesObjects.WithLabelValues(one.route.Name).Set(float64(one.pending()))
	}
	if len(one.changes) > 0 {
		wake(one.wake)
	}
	if len(one.order) > 0 {
		wake(one.more)
	}
}

func wake(worker chan struct{}) {
	select {
	case worker <- struct{}{}:
	default: // the last signal was not received yet
	}
}

// idle records that a Route is no longer active. mu is held.
func (q *Watches) idle() {
	if q.active--; q.active == 0 {
		close(q.quiet)
	}
}

// Settle waits until there is no pending work, and reports whether there was any.
func (q *Watches) Settle(ctx context.Context) (did bool) {
	q.mu.Lock()
	active, quiet := q.active, q.quiet
	q.mu.Unlock()
	if active == 0 {
		return false
	}
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
