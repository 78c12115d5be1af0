package state

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// KnownRoutes finds out which of some routes are not new: those of which the state folder has heard
// of the id.
func (s *State) KnownRoutes(routes []compile.Route) (known map[string]bool, err error) {
	known = make(map[string]bool)
	if s == nil {
		return known, nil
	}
	// A full disk is no reason not to run: what is long gone is there a little longer.
	if err := s.db.ExpireBacklogs(time.Now()); err != nil {
		s.log.Warn(notForgotten, "err", err)
	}
	for i := range routes {
		id := routes[i].ID
		if known[id], err = s.db.KnowsRoute(id); err != nil {
			return nil, fmt.Errorf("state.dir: %w", err)
		}
	}
	return known, nil
}

// KnownNew is KnownRoutes for a reload: of the routes that run it asks nothing.
func (s *State) KnownNew(ctx context.Context, routes, run []compile.Route) (map[string]bool, error) {
	if s == nil {
		return map[string]bool{}, nil
	}
	appear := slices.DeleteFunc(slices.Clone(routes), func(p compile.Route) bool {
		return slices.ContainsFunc(run, func(o compile.Route) bool { return o.ID == p.ID })
	})
	if len(appear) == 0 {
		return map[string]bool{}, nil
	}
	// The backlog of a route that was removed is on disk, once all is written that was collected.
	if err := s.Writer.Flush(ctx); err != nil {
		return nil, fmt.Errorf("the backlogs of routes that come back cannot be read: %w", err)
	}
	return s.KnownRoutes(appear)
}

// ComeBack gives the routes that a reload brings what is kept under their ids: they were removed
// before.
func (s *State) ComeBack(change *pipeline.Change, routes []compile.Route, resource Resolver) error {
	appear := change.New()
	for i := range routes {
		p := &routes[i]
		if !slices.Contains(appear, p.ID) {
			continue
		}
		err := s.restoreRules(change, p.ID)
		if err == nil {
			err = s.comesBack(change, p.Route, resource)
		}
		if err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
	}
	return nil
}

// comesBack gives a route its backlog.
func (s *State) comesBack(change *pipeline.Change, route *config.Route, resource Resolver) error {
	pending, backlog, err := s.backlog(route, resource)
	if err != nil || backlog.N == 0 {
		return err
	}
	return change.Restore(route.ID, pending, backlog)
}
