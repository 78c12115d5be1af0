package pipeline

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Look is one round in which all objects of a route's sources are put through it, to find out for which of them its condition holds: after
// it has changed, when the route is ready, or because time goes by. What differs from what is known is told.
//
// Begin, then Admit for every object, as a Sync that goes the way of all deltas, then End.
type Look struct {
	pipeline *Pipeline
	route    *route
}

// NeedsLook reports whether the condition of a route has to be asked about all objects, because it has changed since that was done
// last, or was not ready.
func (p *Pipeline) NeedsLook(name string) bool {
	r := p.route(name)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.level != nil && r.isLevel() && !r.level.looked
}

// Look begins a round. The error is [ErrNoRoute], also for a route without a condition.
func (p *Pipeline) Look(name string) (*Look, error) {
	r := p.route(name)
	if r == nil || !r.isLevel() {
		return nil, ErrNoRoute
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.level == nil {
		return nil, ErrNoRoute
	}
	r.level.Begin()
	return &Look{p, r}, nil
}

// Admit is [Pipeline.Admit] for the route of the round.
func (l *Look) Admit(ctx context.Context, d *event.Delta) (commit func(), err error) {
	return l.pipeline.admitLevel(ctx, l.route, d, verdict{look: true})
}

// End ends a round in which all objects were put through, or not: then there is to be another one, and it is not called. complete reports
// whether all objects of a source are known: of what is not there any more the condition has ended.
func (l *Look) End(complete func(source string) bool) {
	r := l.route
	r.mu.Lock()
	lv := r.level
	if lv == nil {
		r.mu.Unlock()
		return
	}
	edges := r.level.End(complete, r.now(), nil)
	for _, edge := range edges {
		r.tellEdges([]*event.Delta{edge}, &verdict{route: r, lane: objectID(edge)})
	}
	if !lv.looked {
		lv.looked, lv.noted, lv.first = true, false, false
	}
	held := lv.release()
	r.mu.Unlock()
	lv.dueAll(held)
}

// admitLevel puts one delta through a condition, as what the verdict says of it: look or remind.
func (p *Pipeline) admitLevel(ctx context.Context, r *route, d *event.Delta, as verdict) (commit func(), err error) {
	select {
	case <-p.stopping:
		return nil, ErrStopped
	default:
	}
	if !r.ready() {
		return nil, nil
	}
	v, ok := r.levelVerdict(ctx, d, r.table.Evaluate(ctx, 0, d))
	if ctx.Err() != nil {
		return nil, ctx.Err() // also what the filter says of a context that ended
	}
	if !ok {
		return nil, nil
	}
	v.look, v.remind = as.look, as.remind
	if err := r.waitRoom(ctx, d); err != nil {
		return nil, err
	}
	a := &admission{delta: d}
	a.verdicts = append(a.few[:0], v)
	return a.commit, nil
}

// existingLevel adds what a condition that nobody has asked before says about an object that was there before.
func (a *admission) existingLevel(ctx context.Context, r *route) {
	if r.cfg.Known || !r.ready() {
		return
	}
	if v, ok := r.levelVerdict(ctx, a.delta, r.table.Evaluate(ctx, 0, a.delta)); ok && v.err == nil {
		a.verdicts = append(a.verdicts, v)
	}
}

// evaluateLevel is evaluate for a route with a condition. What was told of it is told; what it failed on is the affair of what has come
// since, unless it fails still.
func (r *route) evaluateLevel(ctx context.Context, d *event.Delta, unseen bool) (v verdict, filtered bool) {
	if isEdge(d.Op) {
		v = r.verdict(ctx, d, filters.Match{Verdict: filters.Matched})
		if !unseen && v.err != nil {
			r.count.errors(errorKind(v.err)).Inc()
			v.err = nil
		}
		return v, false
	}
	if m := r.table.Evaluate(ctx, 0, d); m.Verdict == filters.Failed {
		return r.verdict(ctx, d, m), false
	}
	return v, true
}
