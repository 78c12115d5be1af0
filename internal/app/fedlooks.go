package app

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// fedLooks has the routes with a condition look at all objects, where the sources are fed: see looker.
type fedLooks struct {
	r     *router
	clock timer.Clock
	due   func(route string) // is called by the clock when a route is to look again
	feeds []*informer.Feed
	began map[string]bool // routes that have looked, or need not
}

// begin has the routes look for the first time whose sources have synced, and look again at each check from then on. ready waits until the
// route may be asked.
func (l *fedLooks) begin(ctx context.Context, ready func(route string)) error {
	if l.began == nil {
		l.began = make(map[string]bool)
	}
	for i := range l.r.plan.routes {
		p := &l.r.plan.routes[i]
		unsynced := func(source string) bool {
			status, _ := l.r.factory.Status(source)
			return !status.Synced
		}
		if p.when == nil || l.began[p.Name] || slices.ContainsFunc(slices.Concat(p.lookups(), p.From), unsynced) {
			continue
		}
		l.began[p.Name] = true
		ready(p.Name)
		if l.r.pipeline.NeedsLook(p.Name) {
			if err := l.round(ctx, p); err != nil {
				return err
			}
		}
		l.again(p)
	}
	return nil
}

func (l *fedLooks) again(p *routePlan) {
	if p.Check > 0 {
		l.clock.NewTimer(func() { l.due(p.Name) }).Set(l.clock.Now().Add(p.Check))
	}
}

// look has a route look again, that is due.
func (l *fedLooks) look(ctx context.Context, route string) error {
	i := slices.IndexFunc(l.r.plan.routes, func(p routePlan) bool { return p.Name == route })
	p := &l.r.plan.routes[i]
	l.again(p)
	return l.round(ctx, p)
}

func (l *fedLooks) round(ctx context.Context, p *routePlan) error {
	look, err := l.r.pipeline.Look(p.Name)
	if err != nil {
		return err
	}
	for _, source := range p.From {
		for _, f := range l.feeds {
			if err := f.Resync(ctx, source, look.Admit); err != nil {
				return err
			}
		}
	}
	look.End(func(source string) bool {
		status, ok := l.r.factory.Status(source)
		return ok && status.Synced
	})
	return nil
}
