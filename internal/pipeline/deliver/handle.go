package deliver

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// handling is the input of one call of the handler.
type handling struct {
	todo   []*queue.Entry
	deltas []*event.Delta // the deltas of todo, and of their groups
}

// handle calls the handler with the entries that were not handled yet.
func (b *Batch) handle(ctx, handling context.Context) {
	b.handled.todo, b.handled.deltas = b.handled.todo[:0], b.handled.deltas[:0]
	// Choose what needs the handler: not an entry that is too old, or was handled before a retry at
	// a sink. Without a handler the delta itself is the event.
	for _, e := range b.entries {
		e.Progress.State, e.Progress.Delay = queue.Open, 0
		if e.Progress.Dead == nil && e.Progress.Closed == 0 && e.Progress.Left == nil {
			e.Progress.Dead = b.tooOld(e)
		}
		switch {
		case e.Progress.Dead != nil || e.Progress.Handled:
		case b.settings.Handler == nil:
			deltas := [1]*event.Delta{e.Delta}
			present(b.settings, e, deltas[:])
			if extend(ctx, handling, b, e, deltas[:]) {
				e.Progress.Events = append(e.Progress.Events[:0], unhandled(b, e, deltas[0]))
				e.Progress.Handled = true
			}
		default:
			n := len(b.handled.deltas)
			b.handled.deltas = b.group.appendDeltas(b.handled.deltas, e)
			present(b.settings, e, b.handled.deltas[n:])
			if extend(ctx, handling, b, e, b.handled.deltas[n:]) {
				b.handled.todo = append(b.handled.todo, e)
			} else {
				b.handled.deltas = b.handled.deltas[:n]
			}
		}
	}
	if len(b.handled.todo) == 0 {
		return
	}
	if !b.permits() {
		for _, e := range b.handled.todo {
			e.Progress.State, e.Progress.Delay = queue.Later, permitRetry
		}
		clear(b.handled.deltas)
		return
	}
	// One call for all of them. An error of the whole call tells nothing about a single delta,
	// unless the call was cancelled: then nothing has happened.
	start := b.trace.now()
	results, err := b.call(handling)
	b.trace.handled(b, start)
	clear(b.handled.deltas)
	switch {
	case err != nil && handling.Err() != nil:
		for _, e := range b.handled.todo {
			e.Progress.State = queue.Later
		}
		return
	case err != nil:
		b.retryAlone(ctx, err)
		return
	}
	var stopped *queue.Lane
	for i, e := range b.handled.todo {
		if e.Lane() == stopped {
			// handled too early: its result is dropped, and it is handled again after the entry
			// before it
			continue
		}
		if b.applyVerdict(ctx, e, results[i]); e.Progress.State == queue.Later {
			stopped = e.Lane()
		}
	}
}

// event returns the n-th event of an entry.
func (b *Batch) event(e *queue.Entry, n int, data []byte) event.Event {
	return keyed(e, event.New(e.Delta, b.settings.Name, n, data))
}

// call calls the handler and turns every violation of its contract into an error.
func (b *Batch) call(ctx context.Context) (results []plugins.Result, err error) {
	start := b.env.Clock.Now()
	defer func() {
		b.settings.Count().Handler.Observe(b.env.Clock.Now().Sub(start).Seconds())
		if p := recover(); p != nil {
			err = fmt.Errorf("handler %q panicked: %w", b.settings.HandlerName, spec.Panicked(p))
		}
	}()
	results, err = b.settings.Handler.Handle(ctx, b.handled.deltas)
	if err != nil {
		return nil, plugins.Bound(err) // it names the handler
	}
	if len(results) != len(b.handled.deltas) {
		return nil, fmt.Errorf("handler %q returned %d results for %d deltas", b.settings.HandlerName, len(results), len(b.handled.deltas))
	}
	return results[len(results)-len(b.handled.todo):], nil // of a group the last result counts
}

// retryAlone processes an error of the whole call. A single delta may have caused it: each is
// retried alone, and only that counts as an attempt.
func (b *Batch) retryAlone(ctx context.Context, err error) {
	if len(b.handled.todo) == 1 || plugins.ClassOf(err) == plugins.Postponed {
		for _, e := range b.handled.todo {
			b.reject(ctx, e, err)
		}
		return
	}
	b.settings.Count().Errors("handler").Inc()
	for _, e := range b.handled.todo {
		b.trace.rejected(e, err)
		e.Progress.Alone = true
		e.Progress.State, e.Progress.Delay = queue.Later, max(b.settings.Retry.Delay(1), plugins.RetryAfter(err))
	}
}

// applyVerdict applies the handler's verdict on one entry.
func (b *Batch) applyVerdict(ctx context.Context, e *queue.Entry, result plugins.Result) {
	switch result.Verdict {
	case plugins.OK:
		e.Progress.Events = e.Progress.Events[:0]
		for n, emit := range result.Events {
			ev := b.event(e, n, emit.Data)
			if emit.Type != "" {
				ev.Type = emit.Type
			}
			if emit.Subject != "" {
				ev.Subject = emit.Subject
			}
			e.Progress.Events = append(e.Progress.Events, ev)
		}
		e.Progress.Handled, e.Progress.Alone = true, false
	case plugins.Drop:
		e.Progress.Handled, e.Progress.Alone = true, false
	default:
		err := plugins.Bound(result.Err)
		if err == nil {
			err = fmt.Errorf("handler %q: verdict %s, without a reason", b.settings.HandlerName, result.Verdict)
		}
		b.reject(ctx, e, callrecord.Attach(err, callrecord.Of(result.Err)))
	}
}

// reject counts a failed attempt. Unavailability of the handler is no attempt until the delta is
// too old.
func (b *Batch) reject(ctx context.Context, e *queue.Entry, err error) {
	b.settings.Count().Errors("handler").Inc()
	b.trace.rejected(e, err)
	if plugins.ClassOf(err) == plugins.Postponed {
		if e.Progress.Tries++; b.expired(ctx, e, err) {
			e.Progress.Dead = err
			return
		}
		e.Progress.State = queue.Later
		e.Progress.Delay = max(b.settings.Retry.Delay(e.Progress.Tries), plugins.RetryAfter(err))
		return
	}
	e.Progress.Attempts++
	if plugins.ClassOf(err) == plugins.Rejected || e.Progress.Attempts > b.settings.Retry.Attempts {
		e.Progress.Dead = err
		return
	}
	e.Progress.State = queue.Later
	e.Progress.Delay = max(b.settings.Retry.Delay(e.Progress.Attempts), plugins.RetryAfter(err))
}
