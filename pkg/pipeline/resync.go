package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// ErrNoRoute is returned for a name that no route has, or none has any more.
var ErrNoRoute = errors.New("there is no such route")

// AdmitTo is [Pipeline.Admit] for one route, whatever its ops are: its filter alone decides. The error may be [ErrNoRoute] or [ErrFed] too.
func (p *Pipeline) AdmitTo(ctx context.Context, name string, d *event.Delta) (commit func(), err error) {
	select {
	case <-p.stopping:
		return nil, ErrStopped
	default:
	}
	r := p.route(name)
	if r == nil {
		return nil, ErrNoRoute
	}
	if r.cfg.Fed {
		return nil, ErrFed
	}
	if r.isLevel() {
		return p.admitLevel(ctx, r, d, verdict{})
	}
	m := filters.Match{Verdict: filters.Unready}
	if r.table.Ready(0) {
		m = r.table.Evaluate(ctx, 0, d)
	}
	if m.Verdict == filters.Filtered {
		r.count.filtered.Inc()
		return nil, nil
	}
	a := &admission{delta: d}
	a.verdicts = append(a.few[:0], r.verdict(ctx, d, m))
	if ctx.Err() != nil {
		return nil, ctx.Err() // also what the filter says of a context that ended
	}
	if err := r.waitRoom(ctx, d); err != nil {
		return nil, err
	}
	return a.commit, nil
}

// AwaitRoom waits until a route owes less than half of what its memory may hold, whatever its Overflow is: what can come later need not
// displace anything. It may wait for ever for a route that is paused, or that has left: the caller ends it then. The error is ctx's,
// [ErrStopped] or [ErrNoRoute].
func (p *Pipeline) AwaitRoom(ctx context.Context, name string) error {
	r := p.route(name)
	if r == nil {
		return ErrNoRoute
	}
	for {
		r.mu.Lock()
		if !r.laden() {
			r.mu.Unlock()
			return ctx.Err()
		}
		if r.calm == nil {
			r.calm = make(chan struct{})
		}
		calm := r.calm
		r.mu.Unlock()
		select {
		case <-calm:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.stopping:
			return ErrStopped
		}
	}
}

// laden reports whether the route owes so much that what can wait should.
func (r *route) laden() bool { return r.q.tailed() || 2*r.q.headLen() > r.cfg.Capacity }

// RemindTo is [Pipeline.AdmitTo], but that a route with a condition tells once more what holds still.
func (p *Pipeline) RemindTo(ctx context.Context, name string, d *event.Delta) (commit func(), err error) {
	if r := p.route(name); r != nil && r.isLevel() {
		return p.admitLevel(ctx, r, d, verdict{remind: true})
	}
	return p.AdmitTo(ctx, name, d)
}

// SourcesOf returns where a route gets its deltas from; nil: there is no such route.
func (p *Pipeline) SourcesOf(name string) []string {
	if r := p.route(name); r != nil {
		return slices.Clone(r.cfg.Sources)
	}
	return nil
}

// Takers returns the names of the routes that want such deltas of a source, in the order of the configuration.
func (p *Pipeline) Takers(source string, op event.Op) (names []string) {
	for _, r := range p.now.Load().routes {
		if !r.cfg.Fed && slices.Contains(r.cfg.Sources, source) && slices.Contains(r.cfg.Ops, op) {
			names = append(names, r.cfg.Name)
		}
	}
	return names
}

func (p *Pipeline) route(name string) *route {
	for _, r := range p.now.Load().routes {
		if r.cfg.Name == name {
			return r
		}
	}
	return nil
}
