package engine

import (
	"context"
	"errors"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// when assembles the run-time parts of a rule about time.
func (s *Set) when(p *compile.Route) spec.When {
	return spec.When{
		For: p.For, Every: p.Every,
		CaughtUp: s.caughtUp(p), Resource: s.Resource,
		Object: func(source string, key event.Key) *event.Object {
			for _, spec := range s.Plan.Sources[source].Specs {
				if o := s.stores[spec].Get(key); o != nil {
					return o
				}
			}
			return nil
		},
	}
}

// filter makes a filter of a program, whose text is that of f.
func (s *Set) filter(p *compile.Route, program *cel.Program, f *config.Filter, cache cel.Cache) filters.Filter {
	absent := s.env.Metrics.RouteErrors.WithLabelValues(p.Name, "absent")
	return filters.NewCEL(filters.CELConfig{
		Program: program, Cache: cache, Log: s.env.Log.With("route", p.Name),
		Absent: func(deltas uint64) { absent.Add(float64(deltas)) },
		Place: func(err error) string {
			if at, ok := errors.AsType[*cel.EvalError](err); ok {
				return compile.Place(p.Config, f.For(at.Source), at)
			}
			return ""
		},
	})
}

// caughtUp returns a channel that is closed when a route has received the changes that happened
// while the router was down; nil: it need not wait.
func (s *Set) caughtUp(p *compile.Route) <-chan struct{} {
	if s.env.State == nil || s.env.Seen != nil {
		return s.env.Seen
	}
	caughtUp, before := make(chan struct{}), s.Waits[p.Name]
	s.Waits[p.Name] = func(ctx context.Context) {
		if before != nil {
			before(ctx)
		}
		for _, source := range p.From {
			select {
			case <-s.env.Factory.Synced(source):
			case <-ctx.Done():
				return
			}
		}
		if timer.Sleep(ctx, caughtUpAfter) == nil {
			close(caughtUp)
		}
	}
	return caughtUp
}

// ready returns a channel that is closed when all the sources have synced; nil if it need not wait
// for any.
func (s *Set) ready(route string, sources []string) <-chan struct{} {
	if len(sources) == 0 {
		return nil
	}
	synced, before := make(chan struct{}), s.Waits[route]
	s.Waits[route] = func(ctx context.Context) {
		if before != nil {
			before(ctx)
		}
		for _, source := range sources {
			select {
			case <-s.env.Factory.Synced(source):
			case <-ctx.Done():
				return
			}
		}
		close(synced)
	}
	return synced
}
