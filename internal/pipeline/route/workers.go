package route

import (
	"context"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
)

// Workers are the workers of a route. They share its backlog; one at a time, the leader, builds a
// batch. Start, StartMissing, Stop and Install are called one at a time.
type Workers struct {
	route  *Route
	leader *queue.Leader

	taking context.Context    //nolint:containedctx // done when the route is removed; nil: it has not started
	stop   context.CancelFunc // ends taking
	all    sync.WaitGroup

	// the number of workers, without abandoned ones; guarded by the lock of the route
	count int
	busy  []*worker // the workers with a batch; guarded by the lock of the route

	// entries without a lane that the leaders have evaluated; guarded by the lock of the route
	evaluated int
}

// evaluations is the number of entries without a lane that a leader evaluates before it takes a
// batch of the others: deltas may be deferred faster than they are evaluated.
const evaluations = 100

// Start starts the workers. They end when ctx does, or when the route is removed.
func (ws *Workers) Start(ctx context.Context) {
	r := ws.route
	ws.taking, ws.stop = context.WithCancel(ctx)
	r.Generation().begin(ctx, ws.taking)
	r.StartTimers()
	if r.env.Store != nil {
		ws.run(func() { r.readTail(ws.taking) })
	}
	ws.StartMissing()
}

// run runs a worker, or another goroutine of the route, which Wait waits for.
func (ws *Workers) run(worker func()) {
	ws.all.Add(1)
	ws.route.env.Workers.Go(func() {
		defer ws.all.Done()
		worker()
	})
}

// StartMissing starts the missing workers of the route, if it has started.
func (ws *Workers) StartMissing() {
	if ws.taking == nil {
		return
	}
	ws.route.mu.Lock()
	defer ws.route.mu.Unlock()
	for ; ws.count < ws.route.Generation().Concurrency; ws.count++ {
		ws.run(ws.work)
	}
}

// Stop lets the workers finish their batches and take no more.
func (ws *Workers) Stop() {
	if ws.stop != nil {
		ws.stop()
	}
}

// Drain ends the waits for incomplete batches and retries. No more deltas are added.
func (ws *Workers) Drain() {
	ws.route.mu.Lock()
	defer ws.route.mu.Unlock()
	b := ws.route.backlog
	b.draining = true
	if !b.queue.Changes.On {
		b.queue.EndWindows() // the deltas in windows would be lost
	}
	b.queue.Lanes.WakeAll()
	ws.leader.Signal()
}

// Wait waits until all workers have ended.
func (ws *Workers) Wait() { ws.all.Wait() }

// work takes batches until the route is removed, has fewer workers, or abandons this one. A batch
// that was taken is finished.
func (ws *Workers) work() {
	w := newWorker(ws.route)
	for ws.next(ws.taking, w) {
		if !w.work() {
			return
		}
	}
}

// step is the next action of the leader. The zero step means that it waits.
type step struct {
	taken    bool      // it has a batch
	surplus  bool      // there are too many workers, and it ends
	unplaced *unplaced // an entry whose filter and key must be evaluated

	generation *Generation     // the generation of the step
	again      <-chan struct{} // a channel that ends the wait, beside signals
	also       <-chan struct{} // another one
}

// next takes the next batch for a worker. It returns false if ctx is done, or if there are too many
// workers.
func (ws *Workers) next(ctx context.Context, w *worker) bool {
	if !ws.leader.Acquire(ctx) {
		return false
	}
	defer ws.leader.Release()
	for ctx.Err() == nil {
		s := ws.step(w)
		switch {
		case s.taken:
			return true
		case s.surplus:
			return false
		case s.unplaced != nil:
			ws.assignLane(ctx, &s)
		default:
			ws.leader.Wait(ctx, s.again, s.also)
		}
	}
	ws.route.mu.Lock()
	defer ws.route.mu.Unlock()
	ws.leader.Unpark()
	return false
}

// assignLane assigns a lane to an entry, unless the generation has changed.
func (ws *Workers) assignLane(ctx context.Context, s *step) {
	turn := s.generation.Allowance.Evaluating()
	if !turn.Take(ctx) {
		return
	}
	v, filtered := s.generation.Evaluate(ctx, s.unplaced.Delta, s.unplaced.Unseen)
	turn.Give()
	if ctx.Err() != nil {
		return
	}
	r := ws.route
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.generation == r.Generation() {
		r.backlog.assignLane(s.unplaced, &v, filtered)
		r.changed()
	}
}

// step determines the next action of the leader under one lock. Entries without a lane, restored or
// added before the route was ready, get their lanes first and in order. Then a batch is taken if it
// is due.
func (ws *Workers) step(w *worker) step {
	r := ws.route
	r.mu.Lock()
	defer r.mu.Unlock()
	g, b := r.Generation(), r.backlog
	if ws.count > g.Concurrency {
		ws.count--
		ws.leader.Unpark()
		ws.leader.Signal() // this worker may have consumed a signal for the others
		return step{surplus: true}
	}
	if !b.allPlaced && !b.exchanging() {
		if again := r.awaits(); again != nil {
			// the next generation may have another channel
			return step{generation: g, again: again, also: g.current.Done()}
		}
		if next := b.nextUnplaced(); next != nil {
			if ws.evaluated++; ws.evaluated%evaluations == 0 && ws.take(w, r.now()) {
				return step{taken: true}
			}
			return step{generation: g, unplaced: next}
		}
		b.allPlaced = true
		r.changed()
	}
	return ws.poll(w)
}

// poll takes a batch for a worker if it is due; otherwise it sets the timer. It is called under the
// lock.
func (ws *Workers) poll(w *worker) step {
	r, b := ws.route, ws.route.backlog
	now := r.now() // read under the lock, so that it is not before the time of any entry
	r.expirePause(now)
	if b.queue.Lanes.Wake(now) {
		ws.leader.GateOpened()
	}
	if ws.take(w, now) {
		return step{taken: true}
	}
	// Plan again: take may have found ready lanes blocked, or the limit has emptied them.
	p := ws.plan(now)
	ws.leader.Park(p)
	r.env.Progress.reportIfAwaited()
	return step{again: p.Again}
}

// take takes a batch for a worker if it is due. It is called under the lock.
func (ws *Workers) take(w *worker, now time.Time) bool {
	r, b := ws.route, ws.route.backlog
	p := ws.plan(now)
	if p.Take == 0 {
		return false
	}
	w.batch = b.queue.Take(p.Take, w.batch[:0], b.applyLimit)
	ws.leader.Taken(now, len(w.batch))
	if b.rules.Limit.On() {
		r.changed()
	}
	if len(w.batch) == 0 {
		return false // the ready entries turned out to be blocked
	}
	w.generation = r.Generation()
	ws.busy = append(ws.busy, w)
	return true
}

func (ws *Workers) plan(now time.Time) queue.Plan {
	v := ws.view(now)
	return ws.leader.Plan(&v)
}

// view returns the state of the route for the leader. The queue was woken at now.
func (ws *Workers) view(now time.Time) queue.View {
	r, b, g := ws.route, ws.route.backlog, ws.route.Generation()
	lanes := &b.queue.Lanes
	v := queue.View{
		Now: now, Stopped: r.paused.on() || b.exchanging(), Resume: r.paused.until, Ready: lanes.Ready(), NextDue: lanes.NextDue(), Gate: lanes.Gate(), Size: g.Batch.Size,
	}
	if v.Ready > 0 {
		v.Sinks = r.sinkStates(now)
	}
	if !b.draining && !g.Grouped {
		v.Wait, v.Steady = g.Batch.Wait, g.Debounce.Quiet > 0
	}
	return v
}

// Idle reports whether the route has nothing to do until the clock advances, a delta comes, or it
// becomes ready.
func (r *Route) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, ws, b := r.now(), &r.workers, r.backlog
	switch {
	case len(ws.busy) > 0:
		return false
	case r.paused.on():
		return !r.paused.expired(now)
	case r.catching != nil && r.Generation().IsReady() && r.Generation().CaughtUp():
		return false
	case !b.allPlaced:
		return r.awaits() != nil
	case !ws.leader.Waits(now), b.queue.Lanes.GateIsOpen():
		return false
	}
	v := ws.view(now)
	return ws.leader.Idle(&v)
}
