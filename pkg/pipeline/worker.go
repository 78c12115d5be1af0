package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// work is what is known of an entry once it was attempted.
type work struct {
	attempts int   // of the handler, that failed
	tries    int   // of the sinks, that found one unavailable, or of the dead letters
	alone    bool  // it failed in a batch of several: it is handled by itself
	dead     error // rejected for good: onFailure is what is left
	handled  bool
	events   []event.Event // what the handler made of it
	left     []remaining   // by sink; nil: all events at all sinks
	closed   uint64        // the sinks that are done with it, a bit each
	fed      bool          // one of them is a route
	outcome  outcome

	// What this pass came to, for the worker that has the batch.
	state state
	delay time.Duration
}

// remaining is what a sink did not take yet.
type remaining struct {
	events   []int // indexes into work.events; nil: all
	rejected error // why one of the others was rejected for good
}

// outcome is how an entry ended; of several sinks, the worst.
type outcome uint8

const (
	delivered outcome = iota
	dropped
	deadLettered
)

// state is how far an entry came in one pass.
type state uint8

const (
	open  state = iota
	later       // it is owed still, and tried again after the delay
	done
)

func (w *work) reset() {
	clear(w.events)
	*w = work{events: w.events[:0]}
}

func (w *work) failures() int { return w.attempts + w.tries }

// worker takes batches of its route and does with them what is to be done: handle, deliver, finish. Its slices are reused.
type worker struct {
	*route

	batch   []*entry
	todo    []*entry // those of the batch that the handler has to see
	deltas  []*event.Delta
	cursors []int // in batch: the next entry of each lane
	wave    []*entry
	events  []event.Event
	spans   []span

	group []*entry  // that is taken as one: all of its entries, of which batch has the last
	alone [1]*entry // for members

	failures []failure // what is to be given up, see giveUp
	acked    []uint64  // dead letters whose deltas were acked
	passedOn []uint64  // of which another route has what came of it
	leaving  <-chan struct{}
}

// work works until taking is done, at the latest with ctx: what was taken until then is brought to its end.
func (r *route) work(ctx, taking context.Context) {
	w := &worker{route: r, leaving: taking.Done()}
	for {
		if w.batch = r.next(taking, w.batch[:0]); len(w.batch) == 0 {
			return
		}
		w.join()
		w.handle(ctx)
		w.deliver(ctx)
		w.part()
		w.finish()
		w.forgetLetters(ctx)
	}
}

// forgetLetters removes the dead letters of what was acked.
func (w *worker) forgetLetters(ctx context.Context) {
	w.forget(ctx, w.acked)
	w.acked = w.acked[:0]
	w.keepLetters()
}

// handle lets the handler see the entries that it has not seen yet.
func (w *worker) handle(ctx context.Context) {
	w.todo, w.deltas = w.todo[:0], w.deltas[:0]
	for _, e := range w.batch {
		e.work.state, e.work.delay = open, 0
		if e.work.dead == nil && e.work.closed == 0 && e.work.left == nil {
			e.work.dead = w.tooOld(e)
		}
		switch {
		case e.work.dead != nil || e.work.handled:
		case w.cfg.Handler == nil:
			e.work.events = append(e.work.events[:0], w.keyed(e, event.Plain(e.delta, w.cfg.Name)))
			e.work.handled = true
		default:
			w.todo = append(w.todo, e)
			w.deltas = w.appendDeltas(w.deltas, e)
		}
	}
	if len(w.todo) == 0 {
		return
	}
	results, err := w.call(ctx)
	clear(w.deltas)
	if err != nil {
		w.failed(ctx, err)
		return
	}
	var stopped *slot
	for i, e := range w.todo {
		if e.lane == stopped {
			continue // handled too early: what it came to is forgotten, and it is handled again after what stands before it
		}
		if w.judge(ctx, e, results[i]); e.work.state == later {
			stopped = e.lane
		}
	}
}

// event makes the n-th event of an entry.
func (w *worker) event(e *entry, n int, data []byte) event.Event {
	return w.keyed(e, event.New(e.delta, w.cfg.Name, n, data))
}

// keyed gives an event the key of its entry.
func (w *worker) keyed(e *entry, ev event.Event) event.Event {
	if e.lane.id.source == "" {
		ev.Key = e.lane.id.name
	}
	return ev
}

// call calls the handler and turns every way it can break its contract into an error.
func (w *worker) call(ctx context.Context) (results []plugins.Result, err error) {
	start := w.now()
	defer func() {
		w.count.handler.Observe(w.now().Sub(start).Seconds())
		if p := recover(); p != nil {
			err = fmt.Errorf("handler %q panicked: %w", w.cfg.HandlerName, panicked(p))
		}
	}()
	results, err = w.cfg.Handler.Handle(ctx, w.deltas)
	if err != nil {
		return nil, fmt.Errorf("handler %q: %w", w.cfg.HandlerName, err)
	}
	if len(results) != len(w.deltas) {
		return nil, fmt.Errorf("handler %q returned %d results for %d deltas", w.cfg.HandlerName, len(results), len(w.deltas))
	}
	return results[len(results)-len(w.todo):], nil // of a group the last one counts
}

// failed deals with an error about all that the handler was given. One delta of many may have brought it about: each is tried again
// alone, and only then does it count as an attempt.
func (w *worker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		for _, e := range w.todo {
			e.work.state = later
		}
		return
	}
	if len(w.todo) == 1 || plugins.IsUnavailable(err) {
		for _, e := range w.todo {
			w.reject(ctx, e, err)
		}
		return
	}
	w.count.errors("handler").Inc()
	for _, e := range w.todo {
		e.work.alone = true
		e.work.state, e.work.delay = later, max(w.cfg.Retry.delay(1), plugins.RetryAfter(err))
	}
}

// judge takes the handler's verdict on one entry.
func (w *worker) judge(ctx context.Context, e *entry, result plugins.Result) {
	switch result.Verdict {
	case plugins.OK:
		e.work.events = e.work.events[:0]
		for n, emit := range result.Events {
			ev := w.event(e, n, emit.Data)
			if emit.Type != "" {
				ev.Type = emit.Type
			}
			if emit.Subject != "" {
				ev.Subject = emit.Subject
			}
			e.work.events = append(e.work.events, ev)
		}
		e.work.handled, e.work.alone = true, false
	case plugins.Drop:
		e.work.handled, e.work.alone = true, false
	default:
		err := result.Err
		if err == nil {
			err = errors.New("verdict " + result.Verdict.String())
		}
		w.reject(ctx, e, fmt.Errorf("handler %q: %w", w.cfg.HandlerName, err))
	}
}

// reject counts an attempt that failed. That the handler is unavailable is no attempt, until the delta is too old.
func (w *worker) reject(ctx context.Context, e *entry, err error) {
	w.count.errors("handler").Inc()
	if plugins.IsUnavailable(err) {
		if e.work.tries++; w.expired(ctx, e, err) {
			e.work.dead = err
			return
		}
		e.work.state = later
		e.work.delay = max(w.cfg.Retry.delay(e.work.tries), plugins.RetryAfter(err))
		return
	}
	e.work.attempts++
	if plugins.IsRejected(err) || e.work.attempts > w.cfg.Retry.Attempts {
		e.work.dead = err
		return
	}
	e.work.state = later
	e.work.delay = max(w.cfg.Retry.delay(e.work.attempts), plugins.RetryAfter(err))
}

// finish acks what is done and gives the lanes back.
func (w *worker) finish() {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	if w.frozen {
		return
	}
	for i := 0; i < len(w.batch); {
		lane := w.batch[i].lane
		var at time.Time
		held := false
		for ; i < len(w.batch) && w.batch[i].lane == lane; i++ {
			e := w.batch[i]
			e.taken = false
			if e.work.state == done {
				w.ack(e, now)
				continue
			}
			if !held && e.work.delay > 0 {
				at = now.Add(e.work.delay)
			}
			held = true
			w.tell(e)
			if w.cfg.Handler == nil { // made again quickly, and not worth the memory until then
				clear(e.work.events)
				e.work.events, e.work.handled = e.work.events[:0], false
			}
		}
		if w.q.release(lane, at); len(w.q.delayed) > 0 && w.q.delayed[0] == lane {
			w.signal() // the leader waits for a later one, or for none
		}
	}
	clear(w.batch)
	w.changed()
}

func (w *worker) ack(e *entry, now time.Time) {
	switch e.work.outcome {
	case delivered:
		w.count.delivered.Inc()
	case dropped:
		w.count.dropped.Inc()
	case deadLettered:
		w.count.deadLettered.Inc()
	}
	w.count.delivery.Observe(now.Sub(e.since).Seconds())
	switch {
	case e.letter == 0:
	case e.work.fed && w.q.changes.on:
		w.passedOn = append(w.passedOn, e.letter)
	default:
		w.acked = append(w.acked, e.letter)
	}
	if e.work.handled && len(e.work.events) == 0 && e.work.outcome == dropped {
		w.q.unspend(e)
	}
	w.q.remove(e)
}

// complaintInterval is how often a route says the same in the log.
const complaintInterval = time.Minute

// complain logs a message about failures, at most once in an interval: there may be one for each delta.
func (r *route) complain(message string, d *event.Delta, sink string, err error) {
	if !r.mayComplain(message) {
		return
	}
	r.log.Warn("deltas cannot be delivered", slog.String("what", message), slog.String("delta", d.String()), slog.String("sink", sink), slog.Any("error", err))
}

// mayComplain reports whether a message was not logged in the last interval.
func (r *route) mayComplain(message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if now.Sub(r.complained[message]) < complaintInterval {
		return false
	}
	r.complained[message] = now
	return true
}
