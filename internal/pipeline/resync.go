package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

var (
	// ErrNoRoute is returned for a name that no route has, or none has any more.
	ErrNoRoute = errors.New("there is no such route")
	// ErrDownstream is returned where deltas of a source are put through a downstream route, which
	// takes events of its upstream routes only.
	ErrDownstream = errors.New("other routes deliver to it, and it takes nothing of a source by itself: name one of these")
)

// AdmitTo is [Pipeline.Admit] for one route, whatever its ops are: its filter alone decides. The
// error may be [ErrNoRoute] or [ErrDownstream] too.
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
	if r.Config().Downstream {
		return nil, ErrDownstream
	}
	return admitTo(ctx, r, d, r.Evaluate)
}

// AwaitRoom waits until a route has less pending than half of what its memory may hold, whatever
// its Overflow is: what can come later need not displace anything. It may wait for ever for a route
// that is paused, or that has left: the caller ends it then. The error is ctx's, [ErrStopped] or
// [ErrNoRoute].
func (p *Pipeline) AwaitRoom(ctx context.Context, name string) error {
	r := p.now.Load().byName(name)
	if r == nil {
		return ErrNoRoute
	}
	return r.AwaitRoom(ctx)
}

// RemindTo is [Pipeline.AdmitTo], but that a route with a condition tells once more what holds
// still.
func (p *Pipeline) RemindTo(ctx context.Context, name string, d *event.Delta) (event.Admission, error) {
	r := p.now.Load().byName(name)
	if r == nil || !r.Config().HasCondition() {
		return p.AdmitTo(ctx, name, d)
	}
	return admitTo(ctx, r, d, func(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
		v, ok = r.Evaluate(ctx, d)
		v.Remind = true
		return v, ok
	})
}

// Repeats reports whether what a route is given by [Pipeline.RemindTo] was told before: it has a
// condition.
func (p *Pipeline) Repeats(name string) bool {
	r := p.now.Load().byName(name)
	return r != nil && r.Config().HasCondition()
}

// Wants reports whether [Pipeline.RemindTo] would make something pending at the route, but for what
// a limit suppresses. The errors are the same.
func (p *Pipeline) Wants(ctx context.Context, name string, d *event.Delta) (bool, error) {
	r := p.now.Load().byName(name)
	if r == nil {
		return false, ErrNoRoute
	}
	switch c := r.Config(); {
	case c.Downstream:
		return false, ErrDownstream
	case c.HasCondition():
		h, ok := r.Conditions().Of(d.Source, d.Key())
		return ok && h.State == "told", ctx.Err()
	case !c.Table.Ready(0):
		return true, ctx.Err() // it is asked later
	default:
		return c.Table.Evaluate(ctx, 0, d).Verdict != filters.Filtered, ctx.Err()
	}
}

// SourcesOf returns where a route gets its deltas from; nil: there is no such route.
func (p *Pipeline) SourcesOf(name string) []string {
	if r := p.now.Load().byName(name); r != nil {
		return slices.Clone(r.Config().Sources)
	}
	return nil
}

// Takers returns the names of the routes that want such deltas of a source, in the order of the
// configuration.
func (p *Pipeline) Takers(source string, op event.Op) (names []string) {
	for _, r := range p.now.Load().routes {
		if c := r.Config(); !c.Downstream && slices.Contains(c.Sources, source) && slices.Contains(c.Ops, op) {
			names = append(names, c.Name)
		}
	}
	return names
}

// Resume lets a paused route go on. Its sinks forget what they have counted of it. The error is
// [ErrNoRoute] or [ErrNotPaused].
func (p *Pipeline) Resume(name string) error {
	r := p.now.Load().byName(name)
	if r == nil {
		return ErrNoRoute
	}
	return r.Resume()
}

func (now *routing) byID(id string) *route.Route {
	for _, r := range now.routes {
		if r.Config().ID == id {
			return r
		}
	}
	return nil
}

func (now *routing) byName(name string) *route.Route {
	for _, r := range now.routes {
		if r.Config().Name == name {
			return r
		}
	}
	return nil
}
