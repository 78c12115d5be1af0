package pipeline

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Admit evaluates the routes for d. Cases:
//   - No route wants d: it returns nil, nil.
//   - A route that wants d applies back-pressure, see [route.Route.WaitRoom]: it waits until there
//     is room.
//   - ctx is done: it returns the error of ctx, and d is not pending.
//   - The pipeline is stopped: it returns [ErrStopped], and d is not pending.
//   - Otherwise it returns an Admission. The caller calls its Commit exactly once, for the deltas
//     of an object in their order.
func (p *Pipeline) Admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	select {
	case <-p.life.stopping:
		return nil, ErrStopped
	default:
	}
	var buffer [8]filters.Match
	var a *admission
	var budget filters.Budget
	now := p.now.Load()
	// The table evaluates each distinct filter once, for all routes.
	for _, m := range now.table.Match(ctx, d, buffer[:0]) {
		r := now.routes[m.Entry]
		v, ok := r.Consider(ctx, d, m)
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // also covers filters that failed because ctx ended
		}
		a = a.add(d, r, &v)
		if p.cfg.Store != nil && !transit.Of(d).Enters && m.Verdict == filters.Matched && !v.Condition {
			transit.Of(d).Enters = now.table.Enters(ctx, m.Entry, d, &budget)
		}
	}
	// Routes that the table did not find may know the object: a condition that holds for it ends,
	// and a held delete of it is cancelled.
	if len(now.conditional) > 0 && p.shared.Census.MayContain(d.Source, d.Key()) {
		a = now.addOthers(ctx, d, a)
	}
	if len(now.holding) > 0 && d.Op == event.Added {
		a = now.addCancels(ctx, d, a)
	}
	if a == nil {
		return nil, nil
	}
	// Waiting comes last: between the evaluation and the commit nothing else may wait.
	for i := range a.wanted {
		if err := a.wanted[i].route.WaitRoom(ctx, d); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// admission is a delta between its evaluation and its commit, with the routes that want it. It is
// used once.
type admission struct {
	delta  *event.Delta
	wanted []wanted
	few    [2]wanted
}

// wanted is the verdict of a route that wants the delta.
type wanted struct {
	route   *route.Route
	verdict spec.Verdict
}

// add adds a verdict to an admission, and creates it if a is nil.
func (a *admission) add(d *event.Delta, r *route.Route, v *spec.Verdict) *admission {
	state := transit.Of(d)
	if a == nil {
		a = &admission{delta: d}
		a.wanted, state.Endless = a.few[:0], true
	}
	a.wanted = append(a.wanted, wanted{r, *v})
	state.Endless = state.Endless && !r.Settings().DeliversEnds()
	return a
}

// result returns the admission as an interface, which is nil if a is nil.
func (a *admission) result() event.Admission {
	if a == nil {
		return nil
	}
	return a
}

// Commit applies the verdicts of the routes that want the delta: it becomes pending, or the state
// of a condition changes, see [route.Route.Commit]. It takes no longer than some map accesses, so
// that a source may call it under its cut lock.
func (a *admission) Commit() {
	for i := range a.wanted {
		a.wanted[i].route.Commit(a.delta, &a.wanted[i].verdict)
	}
}

// addOthers adds a "left" verdict for each condition that tracks the object but was not matched by
// the table.
func (now *routing) addOthers(ctx context.Context, d *event.Delta, a *admission) *admission {
	var before []wanted
	if a != nil {
		before = a.wanted
	}
	for _, r := range now.conditional {
		if slices.ContainsFunc(before, func(w wanted) bool { return w.route == r }) || !slices.Contains(r.Settings().Sources, d.Source) {
			continue
		}
		if v, ok := r.Leaves(ctx, d); ok {
			a = a.add(d, r, &v)
		}
	}
	return a
}

// addCancels adds the verdicts of the routes that may hold a delete of the object of d, which
// exists again.
func (now *routing) addCancels(ctx context.Context, d *event.Delta, a *admission) *admission {
	for _, r := range now.holding {
		if !slices.Contains(r.Settings().Sources, d.Source) {
			continue
		}
		if v, ok := r.Returns(ctx, d); ok {
			a = a.add(d, r, &v)
		}
	}
	return a
}

// Existing is [Change.Existing] for the routes that the pipeline was made with. It is called before
// Start, after Restore.
func (p *Pipeline) Existing(ctx context.Context, d *event.Delta) event.Admission {
	return existing(ctx, d, p.now.Load().routes)
}

// existing evaluates d, a delta of an existing object, for the routes that want such deltas.
func existing(ctx context.Context, d *event.Delta, routes []*route.Route) event.Admission {
	var a *admission
	for _, r := range routes {
		if v, ok := r.Existing(ctx, d); ok {
			a = a.add(d, r, &v)
		}
	}
	return a.result()
}

// admitTo evaluates d for one route, and waits for room there.
func admitTo(ctx context.Context, r *route.Route, d *event.Delta, evaluate func(context.Context, *event.Delta) (spec.Verdict, bool)) (event.Admission, error) {
	v, ok := evaluate(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err() // also covers filters that failed because ctx ended
	}
	if !ok {
		return nil, nil
	}
	if err := r.WaitRoom(ctx, d); err != nil {
		return nil, err
	}
	var a *admission
	return a.add(d, r, &v), nil
}
