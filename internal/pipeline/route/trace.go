package route

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
)

// add makes a delta pending, see [queue.Queue.Add], and begins its span.
func (b *backlog) add(i queue.Item) *queue.Entry {
	e := b.queue.Add(i)
	if !b.env.Tracer.On() {
		return e
	}
	matched := time.Time{}
	switch i.From {
	case queue.Live, queue.DeadLetter:
		matched = b.now()
	case queue.Reconfigured: // an abandoned worker may still use the old span
		if i.Old.Trace != nil {
			matched = i.Old.Trace.Matched
		}
	case queue.Restored:
	}
	e.Trace = b.env.Tracer.Begin(i.Delta, matched)
	return e
}

// endTrace ends the span of an entry that leaves the route of a generation.
func (b *backlog) endTrace(c *spec.Settings, e *queue.Entry, result trace.Result) {
	if !e.Trace.Wanted() {
		return
	}
	if c.Shadow && result == trace.Delivered {
		result = trace.Shadowed
	}
	b.env.Tracer.End(e.Trace, e.Delta, func(r *trace.Record) {
		r.Route, r.Result, r.End = c.Name, result, b.now()
		if p := e.Progress; p != nil {
			r.Events = len(p.Events)
		}
	})
}
