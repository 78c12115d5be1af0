package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// maxRequeued is how many changed objects of other sources may wait for a route to put through what depends on them. Beyond it the route
// puts through everything once, which is what they come to.
const maxRequeued = 10_000

// requeue is what a route declares as that: which of its objects to put through once more when objects of other sources change. What has
// changed waits here, once for each object, until the route's worker has put through all that depends on it; one object at a time,
// in the order of its watch and when the route has room.
type requeue struct {
	route    *routePlan
	config   *config.Config
	lookups  []string       // what the expressions look up
	cache    *index.Catalog // has that, and what the route gets
	complain sync.Once

	mu         sync.Mutex
	waiting    map[requeueKey]*event.Delta
	order      []requeueKey  // of waiting
	everything bool          // all waits
	puttingAll bool          // all is being put through
	active     bool          // something waits, or is being put through
	wake       chan struct{} // has a token when something may wait
	stop       context.CancelFunc
}

// requeueKey is an object of another source.
type requeueKey struct {
	source string
	key    event.Key
}

// requeuer is the requeues of all routes.
type requeuer struct {
	r   *router // for what a reload does not exchange
	now atomic.Pointer[map[string][]*requeue]

	mu     sync.Mutex // a requeue's own lock may be taken under it
	all    []*requeue
	ctx    context.Context //nolint:containedctx // of start, for requeues that come later
	active int
	quiet  chan struct{} // closed when none is active
	wait   sync.WaitGroup
}

func newRequeuer(r *router) *requeuer {
	q := &requeuer{r: r}
	q.now.Store(&map[string][]*requeue{})
	return q
}

// requeuesOf makes the requeues of the plan's routes. Their caches are filled by fillCaches.
func (r *router) requeuesOf() (all []*requeue) {
	for i := range r.plan.routes {
		p := &r.plan.routes[i]
		if len(p.requeue) == 0 {
			continue
		}
		q := &requeue{route: p, config: r.plan.config, waiting: make(map[requeueKey]*event.Delta), wake: make(chan struct{}, 1)}
		for _, program := range p.requeue {
			q.lookups = append(q.lookups, program.Sources()...)
		}
		q.cache = r.cache(slices.Compact(slices.Sorted(slices.Values(slices.Concat(q.lookups, p.From)))))
		all = append(all, q)
	}
	return all
}

// use makes these the ones that run. What waits for a route of the same name, or of that which it was, waits on. It does not block.
func (q *requeuer) use(all []*requeue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bySource := make(map[string][]*requeue)
	for _, next := range all {
		for source := range next.route.requeue {
			bySource[source] = append(bySource[source], next)
		}
	}
	old := q.all
	q.all = all
	q.now.Store(&bySource)
	for _, was := range old {
		if was.stop != nil {
			was.stop()
		}
		i := slices.IndexFunc(all, func(next *requeue) bool { return next.route.Name == was.route.Name || next.route.Was == was.route.Name })
		was.mu.Lock()
		if was.active {
			q.idle()
		}
		was.active = false
		waiting, order, everything := was.waiting, was.order, was.everything || was.puttingAll
		was.waiting, was.order = nil, nil
		was.mu.Unlock()
		if i < 0 {
			continue
		}
		for _, key := range order {
			if all[i].route.requeue[key.source] != nil {
				q.put(all[i], waiting[key])
			}
		}
		if everything {
			q.putAll(all[i])
		}
	}
	if q.ctx != nil {
		q.run()
	}
}

// start runs the workers until ctx is done.
func (q *requeuer) start(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ctx = ctx
	q.run() //nolint:contextcheck // it takes what was given
}

// run starts the workers of all. mu is held.
func (q *requeuer) run() {
	for _, one := range q.all {
		ctx, stop := context.WithCancel(q.ctx)
		one.stop = stop
		q.wait.Go(func() { q.work(ctx, one) })
	}
}

// ended waits for the workers, whose context is done, and says what they leave behind.
func (q *requeuer) ended() {
	q.wait.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.all {
		if one.stop != nil {
			one.stop()
		}
		one.mu.Lock()
		if one.active {
			q.r.log.Warn("stopped before everything was put through once more that requeue says; after the start, router resync -route does it",
				slog.String("route", one.route.Name), slog.Int("changes", len(one.order)))
		}
		one.mu.Unlock()
	}
}

// after returns a commit that notes the delta too, if a route wants to know of it.
func (q *requeuer) after(d *event.Delta, commit func()) func() {
	if q == nil || len((*q.now.Load())[d.Source]) == 0 || d.Initial || d.Op == event.Sync {
		return commit
	}
	return func() {
		if commit != nil {
			commit()
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, one := range (*q.now.Load())[d.Source] {
			q.put(one, d)
		}
	}
}

// put has a delta wait for a route, with what waits of the same object as one. mu is held.
func (q *requeuer) put(one *requeue, d *event.Delta) {
	one.mu.Lock()
	key := requeueKey{d.Source, d.Key()}
	was, waits := one.waiting[key]
	switch {
	case one.everything:
	case waits:
		one.waiting[key] = folded(was, d)
	case len(one.order) == maxRequeued:
		one.mu.Unlock()
		q.putAll(one)
		return
	default:
		one.waiting[key] = d
		one.order = append(one.order, key)
	}
	q.signal(one)
}

// putAll has everything wait. mu is held.
func (q *requeuer) putAll(one *requeue) {
	one.mu.Lock()
	one.waiting, one.order, one.everything = make(map[requeueKey]*event.Delta), nil, true
	q.signal(one)
}

// signal wakes the worker and gives up its lock. mu is held.
func (q *requeuer) signal(one *requeue) {
	if !one.active {
		one.active = true
		if q.active++; q.active == 1 {
			q.quiet = make(chan struct{})
		}
	}
	select {
	case one.wake <- struct{}{}:
	default:
	}
	one.mu.Unlock()
}

// idle notes that a requeue is not active any more. mu is held.
func (q *requeuer) idle() {
	if q.active--; q.active == 0 {
		close(q.quiet)
	}
}

// folded is two deltas of one object as one.
func folded(first, last *event.Delta) *event.Delta {
	d := *last
	switch {
	case d.New == nil:
	case first.Old == nil:
		d.Old, d.Op = nil, event.Added
	default:
		d.Old, d.Op = first.Old, event.Updated
	}
	return &d
}

// settle waits until nothing waits, and reports whether anything did.
func (q *requeuer) settle(ctx context.Context) (did bool) {
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

// work puts through what a route has waiting, until ctx is done.
func (q *requeuer) work(ctx context.Context, one *requeue) {
	for _, source := range one.lookups {
		select {
		case <-q.r.factory.Synced(source):
		case <-ctx.Done():
			return
		}
	}
	for ctx.Err() == nil {
		key, d, everything := one.first()
		var refs []expr.Ref
		switch {
		case d != nil:
			refs = q.dependents(ctx, one, d)
		case everything:
			refs = one.objects()
		default:
			select {
			case <-one.wake:
			case <-ctx.Done():
			}
			continue
		}
		if err := q.sync(ctx, one, refs); err != nil {
			if ctx.Err() != nil || errors.Is(err, informer.ErrNotRunning) || errors.Is(err, pipeline.ErrStopped) {
				return
			}
			q.r.log.Error("a requeue was not completed", slog.String("route", one.route.Name), slog.Any("err", err))
		}
		q.done(one, key, d)
	}
}

// first returns the delta that waits longest, or that everything does.
func (one *requeue) first() (key requeueKey, d *event.Delta, everything bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.everything {
		one.everything, one.puttingAll = false, true // what comes from now on waits by itself
		return key, nil, true
	}
	if len(one.order) > 0 {
		key = one.order[0]
	}
	return key, one.waiting[key], false
}

// done takes a delta from what waits, unless more of its object came meanwhile.
func (q *requeuer) done(one *requeue, key requeueKey, d *event.Delta) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	one.puttingAll = false
	if d != nil && len(one.order) > 0 && one.order[0] == key {
		one.order = one.order[1:]
		if one.waiting[key] == d {
			delete(one.waiting, key)
		} else {
			one.order = append(one.order, key)
		}
	}
	if one.active && len(one.order) == 0 && !one.everything {
		one.active = false
		q.idle()
	}
}

// objects returns all that the route gets.
func (one *requeue) objects() (refs []expr.Ref) {
	for _, source := range one.route.From {
		for _, o := range one.cache.Lookup(source, "", "") {
			refs = append(refs, expr.Ref{Key: o.Key(), UID: o.UID()})
		}
	}
	return refs
}

// dependents asks the expression. Where it fails nothing is put through: that is counted, and logged the first time.
func (q *requeuer) dependents(ctx context.Context, one *requeue, d *event.Delta) []expr.Ref {
	refs, err := one.route.requeue[d.Source].Objects(ctx, expr.Input{Delta: d, Cache: one.cache})
	if err == nil || ctx.Err() != nil {
		return refs
	}
	kind := "requeue"
	switch {
	case errors.Is(err, expr.ErrAbsent):
		kind = "absent"
	case errors.Is(err, expr.ErrCost):
		kind = "cost"
	}
	q.r.metrics.RouteErrors.WithLabelValues(one.route.Name, kind).Inc()
	one.complain.Do(func() {
		e := one.route.Requeue[d.Source]
		at := ""
		if failed, ok := errors.AsType[*expr.EvalError](err); ok {
			at = placeIn(one.config, &e, failed)
		}
		q.r.log.Warn("requeue does not say what depends on an object, so nothing is put through for it",
			slog.String("route", one.route.Name), slog.String("at", at), slog.String("delta", d.String()), slog.Any("reason", err))
	})
	return nil
}

// sync puts objects through the route, those that the cache still has. All have one time, as one round of a resync has.
func (q *requeuer) sync(ctx context.Context, one *requeue, refs []expr.Ref) error {
	name := one.route.Name
	admit := func(ctx context.Context, d *event.Delta) (func(), error) { return q.r.pipeline.AdmitTo(ctx, name, d) }
	round := q.r.opts.clock().Now()
	for _, ref := range refs {
		if err := q.r.pipeline.AwaitRoom(ctx, name); err != nil {
			return err
		}
		for _, source := range one.route.From {
			if err := q.r.factory.ResyncObject(ctx, source, ref.Key, ref.UID, round, admit); err != nil {
				return err
			}
		}
	}
	return nil
}

// requeue compiles what a route puts through again, by the source that brings it about.
func (c *compiler) requeue(r *config.Route) map[string]*expr.Program {
	programs := make(map[string]*expr.Program)
	for _, source := range slices.Sorted(maps.Keys(r.Requeue)) {
		e := r.Requeue[source]
		if c.cfg.Sources[source] == nil || e.Text == "" || len(r.From) == 0 {
			continue // reported already
		}
		program, err := c.env.CompileObjects(e.Text, source, r.From...)
		if err != nil {
			c.problems = append(c.problems, problemsOf(c.cfg, &e, []string{source}, err)...)
			continue
		}
		c.checkLookups(&e, program)
		if c.advise {
			c.used.add(program)
			c.used.sources[source] = true
			c.warn(&e, program.Warnings())
		} else {
			c.warn(&e, program.CostWarnings())
		}
		programs[source] = program
	}
	return programs
}
