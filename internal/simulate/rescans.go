package simulate

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// injectedRescans rescans all objects for the routes with a condition when the changes of sources
// are injected, see rescanner.
type injectedRescans struct {
	e       *engine.Engine
	clock   timer.Clock
	due     func(route string) // called by the clock when a rescan of a route is due
	feeds   []*informer.Injector
	started map[string]bool // routes after their first rescan, or that need none
}

// start runs the first rescan of the routes whose sources have synced, and schedules their
// reevaluations. ready waits until the route may be rescanned.
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

// rescan runs a reevaluation of a route that is due.
func (l *injectedRescans) rescan(ctx context.Context, route string) error {
	i := slices.IndexFunc(l.e.Set.Plan.Routes, func(p compile.Route) bool { return p.Name == route })
	p := &l.e.Set.Plan.Routes[i]
	l.again(p)
	return l.round(ctx, p)
}

func (l *injectedRescans) round(ctx context.Context, p *compile.Route) error {
	rescan, err := l.e.Pipeline.Rescan(p.Name) //nolint:contextcheck // the keys of lanes are evaluated at once
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
