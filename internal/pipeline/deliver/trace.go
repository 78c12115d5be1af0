package deliver

import (
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// tracing records the steps of a batch in the spans of its entries. It does nothing if the first
// entry has no span: a reload turns tracing on for the deltas that come later.
type tracing struct {
	on     bool
	secret bool // no span gets the text of an error
	clock  timer.Clock
}

// begin records that the worker has the entries, and links the spans of a group.
func (t *tracing) begin(b *Batch, entries []*queue.Entry) {
	t.on, t.secret, t.clock = len(entries) > 0 && entries[0].Trace != nil, b.settings.Secret, b.env.Clock
	if !t.on {
		return
	}
	now := t.clock.Now()
	for _, e := range entries {
		e.Trace.Take(now)
	}
	if len(b.group.all) > 0 {
		spans := make([]*trace.Span, len(b.group.all))
		for i, e := range b.group.all {
			spans[i] = e.Trace
		}
		b.entries[0].Trace.Join(spans)
	}
}

// now returns the present time, or zero if the batch is not traced, to save a read of the clock.
func (t *tracing) now() (now time.Time) {
	if t.on {
		return t.clock.Now()
	}
	return now
}

// handled records a call of the handler that began at start.
func (t *tracing) handled(b *Batch, start time.Time) {
	if !t.on {
		return
	}
	step := trace.Step{Kind: trace.Handle, Name: b.settings.HandlerName, Start: start, End: t.clock.Now(), Size: len(b.handled.deltas)}
	for _, e := range b.handled.todo {
		e.Trace.Add(step)
	}
}

// written records a write of a wave to a sink that began at start. A write that the breaker refused
// is no attempt.
func (t *tracing) written(w *wave, sink string, start time.Time, errs []error) {
	if !t.on {
		return
	}
	end := t.clock.Now()
	for _, sp := range w.spans {
		step := trace.Step{Kind: trace.Deliver, Name: sink, Start: start, End: end, Size: sp.end - sp.start}
		if errs != nil {
			worst := worstOf(errs[sp.start:sp.end])
			if _, refused := errors.AsType[*RefusedError](worst); refused {
				continue
			}
			step.Err = t.text(worst)
			if class := plugins.ClassOf(worst); worst != nil && (class == plugins.Rejected || class == plugins.Paused) {
				sp.entry.Trace.Fail(step.Err)
			}
		}
		sp.entry.Trace.Add(step)
	}
}

// worstOf returns the first rejection among the results of an entry, or else the first error; nil:
// there is none.
func worstOf(errs []error) (worst error) {
	for _, err := range errs {
		switch {
		case err == nil:
		case plugins.ClassOf(err) == plugins.Rejected, plugins.ClassOf(err) == plugins.Paused:
			return err
		case worst == nil:
			worst = err
		}
	}
	return worst
}

// forwarded records that a downstream route has the events of an entry.
func (t *tracing) forwarded(e *queue.Entry, route string) {
	if t.on {
		now := t.clock.Now()
		e.Trace.Add(trace.Step{Kind: trace.Forward, Name: route, Start: now, End: now, Size: len(e.Progress.Events)})
	}
}

// rejected records that the handler failed on an entry. That is a failure of the delta, unless the
// handler is unavailable at the moment.
func (t *tracing) rejected(e *queue.Entry, err error) {
	if e.Trace == nil {
		return
	}
	e.Trace.Blame(t.text(err))
	if plugins.ClassOf(err) != plugins.Postponed {
		t.failed(e, err)
	}
}

// failed makes the span of an entry one that is exported regardless of the sampling.
func (t *tracing) failed(e *queue.Entry, err error) {
	if e.Trace != nil {
		e.Trace.Fail(t.text(err))
	}
}

// text returns the text of an error for a span. The errors of a route that sees Secrets may repeat
// their content, so they stay in the log of the router.
func (t *tracing) text(err error) string {
	switch {
	case err == nil:
		return ""
	case t.secret:
		return "the error is withheld, because the route gets Secrets: see the log of the router"
	}
	return err.Error()
}
