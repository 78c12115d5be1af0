package pipeline

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Admit evaluates the routes for d, and waits while one that wants it has no room and overflow: block. It returns the function that
// owes d to these routes, nil if there are none. That function is to be called once, in the order of the deltas of an object; it
// takes no longer than some look-ups, so that a source may call it under its cut lock.
//
// The error is ctx's, or [ErrStopped]; then nothing is owed.
func (p *Pipeline) Admit(ctx context.Context, d *event.Delta) (commit func(), err error) {
	select {
	case <-p.stopping:
		return nil, ErrStopped
	default:
	}
	var buffer [8]filters.Match
	var a *admission
	now := p.now.Load()
	for _, m := range now.table.Match(ctx, d, buffer[:0]) {
		v, ok := now.routes[m.Entry].considered(ctx, d, m)
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // also what the filter says of a context that ended
		}
		if a == nil {
			a = &admission{delta: d}
			a.verdicts = a.few[:0]
		}
		a.verdicts = append(a.verdicts, v)
	}
	if len(now.levels) > 0 && p.census.May(d.Source, d.Key()) {
		a = now.addOthers(ctx, d, a)
	}
	if len(now.lasting) > 0 && d.Op == event.Added {
		a = now.returns(ctx, d, a)
	}
	if a == nil {
		return nil, nil
	}
	for _, v := range a.verdicts {
		if err := v.route.waitRoom(ctx, d); err != nil {
			return nil, err
		}
	}
	return a.commit, nil
}

// admission is a delta between its evaluation and its commit.
type admission struct {
	delta    *event.Delta
	verdicts []verdict
	few      [2]verdict
}

// verdict is what came out for one route that wants the delta.
type verdict struct {
	route  *route
	lane   id
	unseen bool  // the route was not ready, so filter and keys were not asked
	err    error // filter or a key failed

	limitKey string // of the limit

	level, holds bool // it is about a condition, which holds
	look         bool // all objects are looked at
	remind       bool // that it holds is told again
	returns      bool // the object is there
}

func (a *admission) commit() {
	for i := range a.verdicts {
		switch v := &a.verdicts[i]; {
		case v.level:
			v.route.observe(a.delta, v)
		case v.returns:
			v.route.comesBack(a.delta, v)
		default:
			v.route.owe(a.delta, v)
		}
	}
}

// considered makes a verdict of what the table found out about a route. ok is false if it comes to nothing.
func (r *route) considered(ctx context.Context, d *event.Delta, m filters.Match) (v verdict, ok bool) {
	switch {
	case r.isLevel():
		return r.levelVerdict(ctx, d, m)
	case m.Verdict == filters.Filtered:
		r.count.filtered.Inc()
		return v, false
	}
	return r.verdict(ctx, d, m), true
}

// addOthers adds the verdicts about conditions that the table did not mention.
func (now *routing) addOthers(ctx context.Context, d *event.Delta, a *admission) *admission {
	if a == nil {
		a = &admission{delta: d}
		a.verdicts = a.few[:0]
	}
	if a.verdicts = now.others(ctx, d, a.verdicts); len(a.verdicts) == 0 {
		return nil
	}
	return a
}
