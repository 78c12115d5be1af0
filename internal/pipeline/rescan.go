package pipeline

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Rescan evaluates the condition of a route for all objects of its sources: after a change of the
// condition, when the route becomes ready, or because time has passed. Edges are enqueued for the
// objects whose result has changed.
//
// The caller calls [Pipeline.Rescan], then Admit with a Sync for each object, in the order of all
// deltas of the object, then End.
type Rescan struct {
	pipeline *Pipeline
	route    *route.Route
	rescan   *route.Rescan
}

// NeedsRescan reports whether the condition of a route must be evaluated for all objects: it has
// changed since the last rescan, or there was none.
func (p *Pipeline) NeedsRescan(name string) bool {
	r := p.now.Load().byName(name)
	return r != nil && !r.Rescanned()
}

// Misses returns the missed objects of the condition of a route; nil: there is no such condition.
func (p *Pipeline) Misses(name string) *Misses {
	r := p.now.Load().byName(name)
	if r == nil || !r.Settings().HasCondition() {
		return nil
	}
	return r.Misses()
}

// Rescan begins a rescan. The error is [ErrNoRoute], also for a route without a condition.
func (p *Pipeline) Rescan(name string) (*Rescan, error) {
	r := p.now.Load().byName(name)
	if r == nil || !r.Settings().HasCondition() {
		return nil, ErrNoRoute
	}
	return &Rescan{p, r, r.BeginRescan()}, nil
}

// Admit is [Pipeline.Admit] for the route of the rescan.
func (s *Rescan) Admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	select {
	case <-s.pipeline.life.stopping:
		return nil, ErrStopped
	default:
	}
	return admitTo(ctx, s.route, d, s.rescan.Evaluate)
}

// End ends a rescan. It is called only if Admit was called for all objects. complete reports
// whether all objects of a source were listed: then the condition ends for objects that no longer
// exist.
func (s *Rescan) End(complete func(source string) bool) { s.rescan.End(complete) }
