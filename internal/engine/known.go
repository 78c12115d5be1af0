package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// KnownRoutes returns the routes whose id the state folder knows, so that they are not new.
func (s *State) KnownRoutes(routes []compile.Route) (known map[string]bool, err error) {
	known = make(map[string]bool)
	if s == nil {
		return known, nil
	}
	// A full disk does not prevent the run: expired backlogs stay a little longer.
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

// KnownNew is KnownRoutes for a reload. It skips the running routes.
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
	// The backlog of a removed route is on disk once the collected changes are written.
	if err := s.Writer.Flush(ctx); err != nil {
		return nil, fmt.Errorf("the backlogs of routes that were removed before cannot be read: %w", err)
	}
	return s.KnownRoutes(appear)
}

// ComeBack restores the state under the ids of routes that a reload adds again after they were
// removed.
func (s *State) ComeBack(change *pipeline.Change, routes []compile.Route, resource resolver) error {
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

// comesBack restores the backlog of a route.
func (s *State) comesBack(change *pipeline.Change, route *config.Route, resource resolver) error {
	pending, backlog, err := s.backlog(route, resource)
	if err != nil || backlog.N == 0 {
		return err
	}
	return change.Restore(route.ID, pending, backlog)
}
