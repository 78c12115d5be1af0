package simulate

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/router/engine"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// injectedRescans has the routes with a condition look at all objects, where the sources are fed:
// see rescanner.
type injectedRescans struct {
	e       *engine.Engine
	clock   timer.Clock
	due     func(route string) // is called by the clock when a route is to look again
	feeds   []*informer.Injector
	started map[string]bool // routes that have looked, or need not
}

// start has the routes look for the first time whose sources have synced, and look again at each
// reevaluation from then on. ready waits until the route may be asked.
func (l *injectedRescans) start(ctx context.Context, ready func(route string)) error {
	if l.started == nil {
		l.started = make(map[string]bool)
	}
	for i := range l.e.Set.Plan.Routes {
		p := &l.e.Set.Plan.Routes[i]
		unsynced := func(source string) bool {
			status, _ := l.e.Factory.Status(source)
			return !status.Synced
		}
		if p.WhenProgram == nil || l.started[p.Name] || slices.ContainsFunc(slices.Concat(p.Lookups(), p.From), unsynced) {
			continue
		}
		l.started[p.Name] = true
		ready(p.Name)
		if l.e.Pipeline.NeedsRescan(p.Name) {
			if err := l.round(ctx, p); err != nil {
				return err
			}
		}
		l.again(p)
	}
	return nil
}

func (l *injectedRescans) again(p *compile.Route) {
	if p.Reevaluate > 0 {
		l.clock.NewTimer(func() { l.due(p.Name) }).Set(l.clock.Now().Add(p.Reevaluate))
	}
}

// rescan has a route look again, that is due.
func (l *injectedRescans) rescan(ctx context.Context, route string) error {
	i := slices.IndexFunc(l.e.Set.Plan.Routes, func(p compile.Route) bool { return p.Name == route })
	p := &l.e.Set.Plan.Routes[i]
	l.again(p)
	return l.round(ctx, p)
}

func (l *injectedRescans) round(ctx context.Context, p *compile.Route) error {
	rescan, err := l.e.Pipeline.Rescan(p.Name)
	if err != nil {
		return err
	}
	for _, source := range p.From {
		for _, f := range l.feeds {
			if err := f.Resync(ctx, source, rescan.Admit); err != nil {
				return err
			}
		}
	}
	rescan.End(func(source string) bool { //nolint:contextcheck // the keys of lanes are evaluated at once
		status, ok := l.e.Factory.Status(source)
		return ok && status.Synced
	})
	return nil
}
