package pipeline

import (
	"context"
	"errors"
	"math/bits"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// span is the place of an entry's events in what is written to a sink.
type span struct {
	entry      *entry
	start, end int
}

// deliver brings the entries of the batch to the sinks, in waves: a write holds at most one delta of each lane, since a sink may take
// a later event where it refused an earlier one. A batch of distinct keys is one wave, so one write for each sink.
func (w *worker) deliver(ctx context.Context) {
	w.cursors = w.cursors[:0]
	for i, e := range w.batch {
		if i == 0 || w.batch[i-1].lane != e.lane {
			w.cursors = append(w.cursors, i)
		}
	}
	for len(w.cursors) > 0 {
		w.bury(ctx)
		w.wave = w.wave[:0]
		going := w.cursors[:0]
		for _, i := range w.cursors {
			if i = w.advance(i); i >= 0 {
				w.wave = append(w.wave, w.batch[i])
				going = append(going, i)
			}
		}
		w.cursors = going
		if len(w.wave) > 0 {
			w.write(ctx)
		}
	}
}

// bury gives up what stands next in its lane and was rejected before it got to a sink.
func (w *worker) bury(ctx context.Context) {
	for _, i := range w.cursors {
		lane := w.batch[i].lane
		for ; i < len(w.batch) && w.batch[i].lane == lane; i++ {
			e := w.batch[i]
			ended := e.work.state == done || e.work.state == open && e.work.handled && len(e.work.events) == 0
			if e.work.state == open && e.work.dead != nil {
				w.failures = append(w.failures, failure{e, -1, e.work.dead})
			} else if !ended {
				break
			}
		}
	}
	state := later
	if w.giveUp(ctx) {
		state = done
	}
	for i := range w.failures {
		w.failures[i].entry.work.state = state
	}
	w.endFailures()
}

// advance returns the first entry of the lane, from i, that has events to deliver; -1 if the lane is at its end or has to wait.
func (w *worker) advance(i int) int {
	lane := w.batch[i].lane
	for ; i < len(w.batch) && w.batch[i].lane == lane; i++ {
		e := w.batch[i]
		switch {
		case e.work.state == done:
			continue
		case e.work.state == later:
			return -1
		case !e.work.handled:
			return -1
		case len(e.work.events) > 0:
			return i
		default:
			e.work.outcome = dropped // by the handler
		}
		e.work.state = done
	}
	return -1
}

// write writes the wave to each sink that still wants something of it: last to those that are routes, for which it may have to wait.
func (w *worker) write(ctx context.Context) {
	for s, b := range w.sinks {
		if b != nil {
			w.writeTo(ctx, s, b)
		}
	}
	for s, b := range w.sinks {
		if b == nil {
			w.feedWave(ctx, s)
		}
	}
	for _, e := range w.wave {
		e.work.state = later
		if bits.OnesCount64(e.work.closed) == len(w.sinks) {
			e.work.state = done
		}
	}
}

// writeTo writes the wave to one sink.
func (w *worker) writeTo(ctx context.Context, s int, b *breaker) {
	w.events, w.spans = w.events[:0], w.spans[:0]
	for _, e := range w.wave {
		if e.work.closed&(1<<s) != 0 {
			continue
		}
		if err := w.tooOld(e); err != nil {
			w.failures = append(w.failures, failure{e, s, err})
			continue
		}
		start := len(w.events)
		if w.events = e.work.appendEvents(w.events, s); len(w.events) == start {
			w.settleAt(ctx, s, e, nil) // only its dead letter is left to be written
			continue
		}
		w.spans = append(w.spans, span{e, start, len(w.events)})
	}
	if len(w.spans) > 0 {
		errs := b.write(ctx, w.events, w.spans[0].end)
		for _, sp := range w.spans {
			if errs == nil {
				w.settleAt(ctx, s, sp.entry, nil)
			} else {
				w.settleAt(ctx, s, sp.entry, errs[sp.start:sp.end])
			}
		}
		clear(w.events)
	}
	if len(w.spans) > 0 && len(w.failures) > 0 {
		w.publish() // dead letters may take their time
	}
	if w.refuse(ctx, s); len(w.spans) > 0 {
		w.publish()
	}
}

// appendEvents appends what a sink has to get.
func (w *work) appendEvents(events []event.Event, sink int) []event.Event {
	if w.left == nil || w.left[sink].events == nil {
		return append(events, w.events...)
	}
	for _, i := range w.left[sink].events {
		events = append(events, w.events[i])
	}
	return events
}

// settleAt takes what a sink said of an entry's events; nil: it has them all.
func (w *worker) settleAt(ctx context.Context, sink int, e *entry, errs []error) {
	work, count := e.work, w.count.events[sink]
	var before, after remaining
	if work.left != nil {
		before = work.left[sink]
	}
	after.rejected = before.rejected
	var refusal error
	if errs == nil {
		n := len(before.events)
		if before.events == nil {
			n = len(work.events)
		}
		count.delivered.Add(float64(n))
	}
	for i, err := range errs {
		switch {
		case err == nil:
			count.delivered.Inc()
		case plugins.IsRejected(err):
			count.rejected.Inc()
			w.count.errors("rejected").Inc()
			after.rejected = err
		default:
			refusal = err
			if before.events != nil {
				i = before.events[i]
			}
			after.events = append(after.events, i)
		}
	}
	if halt := stops(errs); halt != nil {
		w.keep(e, sink, after)
		w.count.errors("paused").Inc()
		w.pause(e.delta, w.cfg.Sinks[sink].Name, halt)
		return
	}
	if refusal != nil && !w.expired(ctx, e, refusal) {
		w.postpone(ctx, e, sink, after, refusal)
		return
	}
	if refusal != nil {
		after.rejected = refusal
	}
	if after.rejected != nil {
		w.failures = append(w.failures, failure{e, sink, after.rejected})
		return
	}
	work.closed |= 1 << sink
}

// stops returns the first of the errors for which the route has to stop, whatever its onFailure is.
func stops(errs []error) error {
	for _, err := range errs {
		if plugins.IsPause(err) {
			return err
		}
	}
	return nil
}

// refuse gives up what the sink rejected for good.
func (w *worker) refuse(ctx context.Context, sink int) {
	ok := w.giveUp(ctx)
	for i := range w.failures {
		if f := &w.failures[i]; ok {
			f.entry.work.closed |= 1 << sink
		} else {
			w.keep(f.entry, sink, remaining{events: []int{}, rejected: f.reason})
		}
	}
	w.endFailures()
}

// expired reports whether an entry is too old to be tried again at a sink that is unavailable.
func (w *worker) expired(ctx context.Context, e *entry, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, context.Canceled) && w.age(e) > w.patience()
}

// postpone keeps what a sink could not take at the moment.
func (w *worker) postpone(ctx context.Context, e *entry, sink int, left remaining, err error) {
	w.keep(e, sink, left)
	if ctx.Err() != nil {
		return
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		e.work.delay = max(e.work.delay, refused.until.Sub(w.now()))
		return
	}
	w.count.events[sink].retried.Add(float64(len(left.events)))
	w.count.errors("unavailable").Inc()
	e.work.tries++
	e.work.delay = max(e.work.delay, w.cfg.Retry.delay(e.work.tries), plugins.RetryAfter(err))
}

func (w *worker) keep(e *entry, sink int, left remaining) {
	if e.work.left == nil {
		e.work.left = make([]remaining, len(w.sinks))
	}
	e.work.left[sink] = left
}
