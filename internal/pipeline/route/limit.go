package route

import (
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// limiter applies the limit of a route, and counts the suppressed deltas.
type limiter struct {
	env      *Storage
	settings *spec.Settings
	queue    *queue.Queue
	rules    *condition.Rules
}

// later reports whether the limit applies to d when it is taken, rather than when it becomes
// pending. Conditions apply the limit before they make an edge.
func (l *limiter) later(d *event.Delta) bool {
	if !l.settings.Limit.On() {
		return false
	}
	window := l.queue.Lanes.Window()
	return window.On() && !queue.IsEdge(d)
}

// admit reports whether d may become pending; otherwise it is suppressed. It returns d, or the
// delta that becomes pending in its place. The edges of conditions were already checked.
func (l *limiter) admit(d *event.Delta, limitKey string) (pending *event.Delta, pass *rules.Pass, ok bool) {
	if !l.settings.Limit.On() || l.later(d) || queue.IsEdge(d) {
		return d, nil, true
	}
	return l.allow(d, limitKey, 1)
}

// allow applies the limit to n deltas; d is the last of them.
func (l *limiter) allow(d *event.Delta, limitKey string, n int) (pending *event.Delta, pass *rules.Pass, ok bool) {
	pending, pass, ok = l.rules.Limit.Allow(d, limitKey, n, l.env.Clock.Now())
	if !ok {
		l.settings.Count().Suppressed.Add(float64(n))
		l.env.Refuse(l.settings.Name, d, true)
		l.hold(d, limitKey)
		return nil, nil, false
	}
	return pending, pass, true
}

// hold records a suppressed delta.
func (l *limiter) hold(d *event.Delta, limitKey string) {
	if l.env.Tracer.Keeps() {
		now := l.env.Clock.Now()
		l.env.Tracer.Hold(l.settings.Name, d, trace.Hold{Result: trace.Suppressed, Rule: trace.RuleLimit, Until: now.Add(l.rules.Limit.Wait(limitKey, now))})
	}
}

// pass applies the limit to n deltas that are taken for the first time; last is the last one.
func (l *limiter) pass(last *queue.Entry, n int) bool {
	d, pass, ok := l.allow(last.Delta, last.Limit.Key, n)
	if !ok && n > 1 && l.env.Tracer.Keeps() {
		for e := range last.Before(n - 1) {
			l.hold(e.Delta, last.Limit.Key)
		}
	}
	if n == 1 || l.settings.Joint { // otherwise the other entries may still be delivered
		last.Limit.Pass = pass
	}
	if ok && d != last.Delta {
		l.queue.SetDelta(last, d)
	}
	return ok
}

// suppresses applies the limit to an entry without a lane, unless it was applied before, and
// reports whether the entry is suppressed.
func (l *limiter) suppresses(e *queue.Entry, v *spec.Verdict) bool {
	if v.Err != nil || !e.Unseen && !e.Limit.Later {
		return false
	}
	if e.Limit.Later = l.later(e.Delta); e.Limit.Later {
		return false
	}
	l.queue.Changes.Note(e)
	d, pass, ok := l.admit(e.Delta, v.LimitKey)
	if e.Limit.Pass = pass; ok && d != e.Delta {
		l.queue.SetDelta(e, d)
	}
	if !ok && !e.Counted {
		l.settings.Count().Matched.Inc()
	}
	return !ok
}

// giveBack takes the unspent passes, and returns them to the limit if back is set, the last one
// first, see [rules.Limit.Return]. This happens under the same lock as the change that left them
// unspent.
func (l *limiter) giveBack(back bool) {
	l.queue.Unspent.Take(func(u queue.UnspentPass) {
		if back {
			l.rules.Return(u.Pass, u.Suppressed, l.env.Clock.Now())
		}
	})
}
