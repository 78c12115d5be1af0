package pipeline

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// settle waits until the route is ready, and gives what was restored and what came until then its lane, in order. It returns false
// when ctx is done.
func (r *route) settle(ctx context.Context) bool {
	r.mu.Lock()
	settled := r.settled
	r.mu.Unlock()
	if settled {
		return true
	}
	if r.cfg.Ready != nil {
		select {
		case <-r.cfg.Ready:
		case <-ctx.Done():
			return false
		}
	}
	for {
		r.mu.Lock()
		e := r.unsettled()
		if e == nil {
			r.settled = true
			r.changed()
			r.mu.Unlock()
			return true
		}
		d, unseen := e.delta, e.unseen
		r.mu.Unlock()

		v, filtered := r.evaluate(ctx, d, unseen)

		r.mu.Lock()
		if limitLess := r.limitLess; limitLess || ctx.Err() != nil {
			r.mu.Unlock()
			<-ctx.Done() // the route has a successor, which goes on with it
			return false
		}
		if filtered {
			r.count.filtered.Inc()
			r.q.remove(e)
		} else if unseen && v.err == nil && r.holds(d) {
			r.q.remove(e)
			r.hold(d, v.lane)
		} else if r.limited(e, &v) {
			r.suppress(e)
		} else {
			r.place(e, &v)
		}
		r.changed()
		r.mu.Unlock()
	}
}

// limited asks the limit about an entry without a lane that it was not asked about, and reports whether it is suppressed.
func (r *route) limited(e *entry, v *verdict) bool {
	if v.err != nil || !e.unseen && !e.unlimited {
		return false
	}
	if e.unlimited = r.limitsLater(e.delta); e.unlimited {
		return false
	}
	r.q.changes.note(e)
	d, pass, ok := r.wouldOwe(e.delta, v.limitKey)
	if e.pass = pass; ok && d != e.delta {
		r.q.setDelta(e, d)
	}
	return !ok
}

// unsettled returns the next entry without a lane, in a stage in which nothing else touches it: restored ones come first.
func (r *route) unsettled() *entry {
	if e := r.q.ages[settling].head; e != nil {
		return e
	}
	e := r.q.ages[pending].head
	if e != nil {
		r.q.setStage(e, settling)
	}
	return e
}

// evaluate asks filter and key. A delta that has passed before a restart has passed: what the filter looks up may have changed since,
// but the delta is owed. Without a key it is ordered by its object then.
func (r *route) evaluate(ctx context.Context, d *event.Delta, unseen bool) (v verdict, filtered bool) {
	if r.isLevel() {
		return r.evaluateLevel(ctx, d, unseen)
	}
	if !unseen {
		v = r.verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		if v.err != nil {
			r.count.errors(errorKind(v.err)).Inc()
			v.err = nil
		}
		return v, false
	}
	m := r.table.Evaluate(ctx, 0, d)
	return r.verdict(ctx, d, m), m.Verdict == filters.Filtered
}
