package route

import (
	"context"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// worker takes batches of its route, and delivers them.
type worker struct {
	route      *Route
	generation *Generation // of the batch
	batch      []*queue.Entry
	delivery   *deliver.Batch

	acked    []uint64 // dead letters whose deltas were acked
	settled  []uint64 // numbers of deltas of another process that were acked
	passedOn []uint64 // dead letters whose events a downstream route has

	// its entries were enqueued again; guarded by the lock of the route, and by the chains
	abandoned bool
}

func newWorker(r *Route) *worker {
	w := &worker{route: r}
	w.delivery = deliver.New(deliver.Env{Clock: r.env.Clock, Progress: w, Chain: w, Letters: r.env.Letters, Permit: r.env.Permit})
	return w
}

// work delivers a batch. It returns false if the worker was abandoned.
func (w *worker) work() bool {
	w.delivery.Handle(w.generation.ctx, w.generation.handling, w.generation.Settings, w.generation.targets, w.batch)
	if w.isAbandoned() {
		return false
	}
	w.delivery.Deliver(w.generation.ctx)
	if !w.finish() {
		return false
	}
	w.settle()
	w.removeDeadLetters(w.generation.ctx)
	return true
}

// isAbandoned reports whether the worker was abandoned because its handler has not returned in
// time.
func (w *worker) isAbandoned() bool {
	if w.generation.ctx.Err() == nil {
		return false
	}
	w.route.mu.Lock()
	defer w.route.mu.Unlock()
	return w.abandoned
}

// removeDeadLetters removes the dead letters of acked deltas.
func (w *worker) removeDeadLetters(ctx context.Context) {
	w.route.removeLetters(ctx, w.acked)
	w.acked = w.acked[:0]
	w.route.env.Chains.keep(w.route, w.passedOn)
	w.passedOn = w.passedOn[:0]
}

// settle reports the deltas of another process that are done.
func (w *worker) settle() {
	if len(w.settled) == 0 {
		return
	}
	if w.route.env.Settled != nil {
		w.route.env.Settled(w.generation.Name, w.settled)
	}
	w.settled = w.settled[:0]
}

// Report implements deliver.Progress.
func (w *worker) Report(entries []*queue.Entry) {
	changes := &w.route.backlog.queue.Changes
	if !changes.On {
		return
	}
	w.route.mu.Lock()
	defer w.route.mu.Unlock()
	if w.abandoned {
		return
	}
	for _, e := range entries {
		changes.Report(e)
	}
}

// Pause implements deliver.Progress.
func (w *worker) Pause(d *event.Delta, target string, reason error, keep bool) {
	by := byFailure
	if keep {
		by = bySink
	}
	w.route.pauseFailed(w.generation, d, target, reason, by)
}

// Refused implements deliver.Progress.
func (w *worker) Refused(d *event.Delta) { w.route.env.Refuse(w.route.Generation().Name, d, false) }

// Complain implements deliver.Progress.
func (w *worker) Complain(message string, d *event.Delta, target string, err error) {
	w.route.env.warn(w.route.Generation(), message, d, target, err)
}

// finish acks the entries that are done and releases the lanes. It returns false if the worker was
// abandoned.
func (w *worker) finish() bool {
	now := w.route.now()
	w.route.mu.Lock()
	defer w.route.mu.Unlock()
	if w.abandoned {
		return false
	}
	w.route.workers.busy = slices.DeleteFunc(w.route.workers.busy, func(o *worker) bool { return o == w })
	// The entries of a lane are neighbours in a batch; the lane is released once, behind its last.
	for i := 0; i < len(w.batch); {
		lane := w.batch[i].Lane()
		end := i + 1
		for end < len(w.batch) && w.batch[end].Lane() == lane {
			end++
		}
		at := w.finishLane(w.batch[i:end], now)
		if w.route.backlog.queue.Release(lane, at) {
			w.route.workers.leader.Signal() // the leader waits for a later deadline, or for none
		}
		i = end
	}
	clear(w.batch)
	if w.route.backlog.exchanging() && len(w.route.workers.busy) == 0 {
		w.route.reassignLanes()
	} else {
		w.route.changed()
	}
	return true
}

// finishLane acks the entries of a lane that are done, and returns the time of the next attempt of
// the first one that is not; zero: at once.
func (w *worker) finishLane(entries []*queue.Entry, now time.Time) (at time.Time) {
	held := false
	for _, e := range entries {
		e.Return()
		if e.Progress.State == queue.Done {
			w.ack(e, now)
			continue
		}
		if !held && e.Progress.Delay > 0 {
			at = now.Add(e.Progress.Delay)
		}
		held = true
		w.route.backlog.queue.Changes.Report(e)
		// the event is quickly made again, and need not take memory until then
		if w.generation.Handler == nil && e.Work == 0 {
			clear(e.Progress.Events)
			e.Progress.Events, e.Progress.Handled = e.Progress.Events[:0], false
		}
		w.route.backlog.queue.Head.Weigh(e)
	}
	return at
}

func (w *worker) ack(e *queue.Entry, now time.Time) {
	count, q := w.generation.Count(), &w.route.backlog.queue
	result := trace.Delivered
	switch e.Progress.Outcome {
	case queue.Delivered:
		count.Delivered.Inc()
	case queue.Dropped:
		count.Dropped.Inc()
		result = trace.Dropped
	case queue.DeadLettered:
		count.DeadLettered.Inc()
		result = trace.DeadLettered
	}
	// The exemplar of the latency names the first event.
	id := ""
	if len(e.Progress.Events) > 0 {
		id = e.Progress.Events[0].ID
	}
	count.Deliveries.Observe(now, now.Sub(e.Since), id, e.Trace.Exemplar())
	w.route.backlog.endTrace(w.generation.Settings, e, result)
	// A redelivered dead letter is removed after the lock is released; if a downstream route has
	// its events, not before they are on disk there.
	switch {
	case e.DeadLetter == 0:
	case e.Progress.PassedOn && q.Changes.On:
		w.passedOn = append(w.passedOn, e.DeadLetter)
	default:
		w.acked = append(w.acked, e.DeadLetter)
	}
	if e.Work > 0 {
		w.settled = append(w.settled, e.Work)
	}
	if e.Progress.Empty() {
		q.Unspent.Add(e)
	}
	q.Remove(e)
}
