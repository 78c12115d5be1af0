package backlog

import (
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// limiter asks the limit of a route which deltas become pending, and counts those that do not.
type limiter struct {
	env    *Env
	config *spec.Config
	queue  *queue.Queue
	rules  *condition.Rules
}

// later reports whether the limit is asked when d is taken rather than when it becomes
// pending. The conditions of a route ask it before they make an edge.
func (l *limiter) later(d *event.Delta) bool {
	if !l.config.Limit.On() {
		return false
	}
	window := l.queue.Lanes.Window()
	return window.On() && !queue.IsEdge(d.Op)
}

// admit reports whether d may become pending; else it is suppressed. It returns d, or the delta
// that becomes pending in its place. Only conditions ask the limit elsewhere, for their edges.
func (l *limiter) admit(d *event.Delta, limitKey string) (pending *event.Delta, pass *rules.Pass, ok bool) {
	if !l.config.Limit.On() || l.later(d) || queue.IsEdge(d.Op) {
		return d, nil, true
	}
	return l.allow(d, limitKey, 1)
}

// allow asks the limit about n deltas that d is the last of.
func (l *limiter) allow(d *event.Delta, limitKey string, n int) (pending *event.Delta, pass *rules.Pass, ok bool) {
	pending, pass, ok = l.rules.Limit.Allow(d, limitKey, n, l.env.Clock.Now())
	if !ok {
		l.config.Count.Suppressed.Add(float64(n))
		l.env.Refuse(l.config.Name, d, true)
		return nil, nil, false
	}
	return pending, pass, true
}

// pass reports whether the limit lets n deltas pass that are taken for the first time, of which
// last is the last one.
func (l *limiter) pass(last *queue.Entry, n int) bool {
	d, pass, ok := l.allow(last.Delta, last.Limit.Key, n)
	if n == 1 || l.config.Joint { // else something may come of the others
		last.Limit.Pass = pass
	}
	if ok && d != last.Delta {
		l.queue.SetDelta(last, d)
	}
	return ok
}

// suppresses asks the limit about an entry without a lane that it was not asked about, and reports
// whether it is suppressed.
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
		l.config.Count.Matched.Inc()
	}
	return !ok
}

// giveBack takes unspent passes, and gives them back to the limit, the last one first, in the step
// that makes them so: see [rules.Limit.Return].
func (l *limiter) giveBack(back bool) {
	l.queue.Unspent.Take(func(u queue.UnspentPass) {
		if back {
			l.rules.Return(u.Pass, u.Suppressed, l.env.Clock.Now())
		}
	})
}
