package route

import (
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
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

// absorbed ends the span of an entry that is coalesced, see [queue.Queue.Absorbed].
func (b *backlog) absorbed(e *queue.Entry, into *event.Delta) {
	if !e.Trace.Wanted() {
		return
	}
	b.env.Tracer.End(e.Trace, e.Delta, func(r *trace.Record) {
		r.Route, r.Result, r.End = b.settings.Name, trace.Coalesced, b.now()
		if r.Undone = into == nil; !r.Undone {
			r.Into = strings.Clone(into.Object().ResourceVersion())
		}
	})
}

// holdInWindow records that an entry, which was just placed, waits in a window: once for an object
// and window.
func (b *backlog) holdInWindow(e *queue.Entry) {
	window := b.queue.Lanes.Window()
	if !window.On() || !b.env.Tracer.Keeps() {
		return
	}
	until, latest, opens := b.queue.Lanes.Opens(e)
	if !opens {
		return
	}
	hold := trace.Hold{Result: trace.Held, Rule: trace.RuleBatch, Until: until, Latest: latest}
	if window.Quiet > 0 {
		hold.Rule = trace.RuleDebounce
	}
	b.env.Tracer.Hold(b.settings.Name, e.Delta, hold)
}

// fates are the results of the fates of reports.
var fates = map[rules.Fate]trace.Result{
	rules.Delayed: trace.Held, rules.Cancelled: trace.Cancelled, rules.Suppressed: trace.Suppressed, rules.Skipped: trace.Skipped,
}

// untold records a report that is not made, or not yet, unless the route has no such reports.
func (b *backlog) untold(u rules.Untold) {
	if queue.IsEdge(u.Delta) && u.Fate != rules.Cancelled && !slices.Contains(b.settings.Ops, u.Delta.Op) {
		return
	}
	hold := trace.Hold{Result: fates[u.Fate], Rule: trace.RuleFor, Until: u.Until}
	switch {
	case u.Limit:
		hold.Rule = trace.RuleLimit
	case u.Fate == rules.Skipped:
		hold.Rule = trace.RuleExisting
	}
	b.env.Tracer.Hold(b.settings.Name, u.Delta, hold)
}
