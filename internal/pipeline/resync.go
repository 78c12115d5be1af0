package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

var (
	// ErrNoRoute is returned for a name without a route.
	ErrNoRoute = errors.New("there is no such route")
	// ErrDownstream is returned when deltas of a source are admitted to a downstream route, which
	// takes only events of its upstream routes.
	ErrDownstream = errors.New("it is a downstream route, which takes no deltas of sources: name one of its upstream routes")
)

// AdmitTo is [Pipeline.Admit] for one route, regardless of its ops: only its filter decides. The
// error may also be [ErrNoRoute] or [ErrDownstream].
func (p *Pipeline) AdmitTo(ctx context.Context, name string, d *event.Delta) (event.Admission, error) {
	select {
	case <-p.life.stopping:
		return nil, ErrStopped
	default:
	}
	r := p.now.Load().byName(name)
	if r == nil {
		return nil, ErrNoRoute
	}
	if r.Settings().Downstream {
		return nil, ErrDownstream
	}
	return admitTo(ctx, r, d, r.Evaluate)
}

// AwaitRoom waits until the backlog of a route is less than half full, regardless of its Overflow,
// so that deltas that can wait do not displace others. It may wait for ever for a route that is
// paused or removed: the caller cancels it then. The error is that of ctx, [ErrStopped] or
// [ErrNoRoute].
func (p *Pipeline) AwaitRoom(ctx context.Context, name string) error {
	r := p.now.Load().byName(name)
	if r == nil {
		return ErrNoRoute
	}
	return r.AwaitRoom(ctx)
}

// RemindTo is [Pipeline.AdmitTo], except that a route with a condition repeats its report if the
// condition still holds.
func (p *Pipeline) RemindTo(ctx context.Context, name string, d *event.Delta) (event.Admission, error) {
	r := p.now.Load().byName(name)
	if r == nil || !r.Settings().HasCondition() {
		return p.AdmitTo(ctx, name, d)
	}
	return admitTo(ctx, r, d, func(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
		v, ok = r.Evaluate(ctx, d)
		v.Remind = true
		return v, ok
	})
}

// Repeats reports whether [Pipeline.RemindTo] repeats earlier reports for a route: it has a
// condition.
func (p *Pipeline) Repeats(name string) bool {
	r := p.now.Load().byName(name)
	return r != nil && r.Settings().HasCondition()
}

// Wants reports whether [Pipeline.RemindTo] would enqueue a delta at the route, not considering its
// limit. The errors are the same.
func (p *Pipeline) Wants(ctx context.Context, name string, d *event.Delta) (bool, error) {
	r := p.now.Load().byName(name)
	if r == nil {
		return false, ErrNoRoute
	}
	switch c := r.Settings(); {
	case c.Downstream:
		return false, ErrDownstream
	case c.HasCondition():
		h, ok := r.HoldingOf(d.Source, d.Key())
		return ok && h.State == "entered", ctx.Err()
	case !c.Table().Sees(0, d):
		return false, ctx.Err()
	case !c.Table().Ready(0):
		return true, ctx.Err() // it is evaluated later
	default:
		return c.Table().Evaluate(ctx, 0, d).Verdict != filters.Filtered, ctx.Err()
	}
}

// SourcesOf returns the sources of a route; nil: there is no such route.
func (p *Pipeline) SourcesOf(name string) []string {
	if r := p.now.Load().byName(name); r != nil {
		return slices.Clone(r.Settings().Sources)
	}
	return nil
}

// Takes reports whether a route may want deltas of a source with an operation; with initial, those
// of the objects that the source has when its watch begins.
func (p *Pipeline) Takes(source string, op event.Op, initial bool) bool {
	now := p.now.Load()
	if initial {
		return now.table.TakesInitial(source, op)
	}
	return slices.ContainsFunc(now.routes, func(r *route.Route) bool {
		c := r.Settings()
		return !c.Downstream && slices.Contains(c.Sources, source) && slices.Contains(c.Ops, op)
	})
}

// Pause is [route.Route.Pause] of a route. The error may also be [ErrNoRoute].
func (p *Pipeline) Pause(name string, until time.Time) error {
	r := p.now.Load().byName(name)
	if r == nil {
		return ErrNoRoute
	}
	return r.Pause(until)
}

// Resume is [route.Route.Resume] of a route. The error may also be [ErrNoRoute].
func (p *Pipeline) Resume(name string) error {
	r := p.now.Load().byName(name)
	if r == nil {
		return ErrNoRoute
	}
	return r.Resume()
}

func (now *routing) byID(id string) *route.Route {
	for _, r := range now.routes {
		if r.Settings().ID == id {
			return r
		}
	}
	return nil
}

func (now *routing) byName(name string) *route.Route {
	for _, r := range now.routes {
		if r.Settings().Name == name {
			return r
		}
	}
	return nil
}
