package route

import (
	"context"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/backlog"
	"github.com/deltarouter/deltarouter/internal/pipeline/schedule"
)

// Crew is the workers of a route. They share its backlog; one at a time of them, the leader, puts a
// batch together. Start, Hire, Stop and Install are called one at a time.
type Crew struct {
	route  *Route
	leader *schedule.Leader

	taking context.Context    //nolint:containedctx // done when the route is removed; nil: it has not started
	stop   context.CancelFunc // ends taking
	all    sync.WaitGroup

	staff int       // workers, but for those that were given up; guarded by the lock of the route
	busy  []*worker // those that have a batch; guarded by the lock of the route
}

// Start starts the workers. They end when ctx does, or when the route is removed.
func (c *Crew) Start(ctx context.Context) {
	r := c.route
	c.taking, c.stop = context.WithCancel(ctx)
	r.Config().begin(ctx, c.taking)
	r.conditions.Begin()
	if r.env.Store != nil {
		c.run(func() { r.refill.run(c.taking) })
	}
	c.Hire()
}

// run runs a worker.
func (c *Crew) run(worker func()) {
	c.all.Add(1)
	c.route.env.Workers.Go(func() {
		defer c.all.Done()
		worker()
	})
}

// Hire starts the workers that the route lacks, if it has started.
func (c *Crew) Hire() {
	if c.taking == nil {
		return
	}
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	for ; c.staff < c.route.Config().Concurrency; c.staff++ {
		c.run(c.work)
	}
}

// Stop lets the workers end their batches and take no more.
func (c *Crew) Stop() {
	if c.stop != nil {
		c.stop()
	}
}

// Drain lets the workers deliver what waits for more. Nothing more is added.
func (c *Crew) Drain() {
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	b := c.route.backlog
	b.Draining = true
	if !b.Queue.Changes.On {
		b.Queue.EndWindows() // what rests would be lost
	}
	b.Queue.Lanes.WakeAll()
	c.leader.Signal()
}

// Wait waits until all workers have ended.
func (c *Crew) Wait() { c.all.Wait() }

// work takes batches until the route is removed, has fewer workers, or gives this one up. A batch
// that was taken is brought to its end.
func (c *Crew) work() {
	w := newWorker(c.route)
	for c.next(c.taking, w) {
		if !w.work() {
			return
		}
	}
}

// step is what the leader does next: nothing of all means that it waits.
type step struct {
	taken     bool               // it has a batch
	dismissed bool               // there is a worker too many, and it goes
	unsettled *backlog.Unsettled // filter and key are to be evaluated for it

	config *Config         // by which the step was found
	again  <-chan struct{} // what it waits for, beside signals: this
	also   <-chan struct{} // or this
}

// next gives a worker its next batch; none, and false, when ctx is done, or if there are too many
// workers.
func (c *Crew) next(ctx context.Context, w *worker) bool {
	if !c.leader.Acquire(ctx) {
		return false
	}
	defer c.leader.Release()
	for ctx.Err() == nil {
		s := c.step(w)
		switch {
		case s.taken:
			return true
		case s.dismissed:
			return false
		case s.unsettled != nil:
			c.settle(ctx, &s)
		default:
			c.leader.Wait(ctx, s.again, s.also)
		}
	}
	c.route.mu.Lock()
	defer c.route.mu.Unlock()
	c.leader.Unpark()
	return false
}

// settle gives an entry its lane, unless there is another configuration by now.
func (c *Crew) settle(ctx context.Context, s *step) {
	v, filtered := s.config.Evaluate(ctx, s.unsettled.Delta, s.unsettled.Unseen)
	if ctx.Err() != nil {
		return
	}
	r := c.route
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.config == r.Config() {
		r.backlog.Settle(s.unsettled, &v, filtered)
		r.changed()
	}
}

// step finds what is next for the worker that is the leader, under one lock: entries that were
// restored, or that came before the route was ready, get their lanes first, in order, then a batch
// is taken if it is time to.
func (c *Crew) step(w *worker) step {
	r := c.route
	r.mu.Lock()
	defer r.mu.Unlock()
	config, b := r.Config(), r.backlog
	if c.staff > config.Concurrency {
		c.staff--
		c.leader.Unpark()
		c.leader.Signal() // the signal for the others may have come to this one
		return step{dismissed: true}
	}
	if !b.Settled && b.Old == nil {
		if !config.IsReady() {
			// the next configuration may have another
			return step{config: config, again: config.Ready, also: config.current.Done()}
		}
		if next := b.NextUnsettled(); next != nil {
			return step{config: config, unsettled: next}
		}
		b.Settled = true
		r.changed()
	}
	return c.poll(w)
}

// poll takes a batch for a worker if it is time to; else it sets the timer. It is called under the
// lock.
func (c *Crew) poll(w *worker) step {
	r, b := c.route, c.route.backlog
	now := r.now() // under the lock: what came before has come by then
	b.Queue.Lanes.Wake(now)
	p := c.plan(now)
	if p.Take > 0 {
		c.leader.Taken()
		if w.batch = b.Queue.Take(p.Take, w.batch[:0], b.Pass); b.Rules.Limit.On() {
			r.changed()
		}
		if len(w.batch) > 0 {
			w.config = r.Config()
			c.busy = append(c.busy, w)
			return step{taken: true}
		}
		p = c.plan(now) // what was ready has to wait for something
	}
	c.leader.Park(p)
	r.env.Progress.reportIfAwaited()
	return step{again: p.Again}
}

func (c *Crew) plan(now time.Time) schedule.Plan {
	v := c.view(now)
	return c.leader.Plan(&v)
}

// view returns what the leader sees of the route at a time, to which the queue was woken.
func (c *Crew) view(now time.Time) schedule.View {
	r, b, config := c.route, c.route.backlog, c.route.Config()
	lanes := &b.Queue.Lanes
	v := schedule.View{
		Now: now, Stopped: r.paused.on() || b.Old != nil, Ready: lanes.Ready(), NextDue: lanes.NextDue(), Gate: lanes.Gate(), Size: config.Batch.Size,
	}
	if v.Ready > 0 {
		v.Sinks = r.links.sinks(now)
	}
	if !b.Draining && !config.Grouped {
		v.Wait = config.Batch.Wait
	}
	return v
}

// Idle reports whether the route has nothing to do unless the clock moves, something comes, or it
// becomes ready.
func (r *Route) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, c, b := r.now(), &r.crew, r.backlog
	switch {
	case len(c.busy) > 0:
		return false
	case r.paused.on():
		return true
	case r.conditions.catching != nil && r.Config().IsReady() && r.Config().CaughtUp():
		return false
	case !b.Settled:
		return !r.Config().IsReady()
	case !c.leader.Waits(now), b.Queue.Lanes.GateIsOpen():
		return false
	}
	v := c.view(now)
	return c.leader.Idle(&v)
}
