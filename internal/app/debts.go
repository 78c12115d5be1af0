package app

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// spillShare is the part of state.maxSize, as 1/n, that the routes' debts may take together: a sink that is down must not fill the
// state file, without which nothing goes on.
const spillShare = 2

// resolver gives the resource that a source watches; nil: there is no such source.
type resolver func(source string) *event.Resource

// resolve sets where the resources of deltas come from that are read back.
func (s *state) resolve(resource resolver) { s.resource.Store(&resource) }

// restoreRoute gives a route what it owed, under its former name too.
func (s *state) restoreRoute(route *config.Route) error {
	waits, err := s.inherit(route)
	if err != nil {
		return err
	}
	was := ""
	if waits {
		was = route.Was
	}
	if err := s.restoreRules(s.pipeline, route.Name, route.Name, was); waits || err != nil {
		return err
	}
	owed, debt, err := s.debt(route, *s.resource.Load())
	if err != nil {
		return err
	}
	return s.pipeline.Restore(route.Name, owed, debt)
}

// restoreRules gives a route what rules about time knew under some names, an empty one being none. Where two knew something of the same, that
// of the first counts.
func (s *state) restoreRules(to interface {
	RestoreRules(name string, records []checkpoint.RuleRecord) error
}, route string, names ...string,
) error {
	var all []checkpoint.RuleRecord
	for _, name := range names {
		if name == "" {
			continue
		}
		records, err := s.db.LoadRules(name)
		if err != nil {
			return err
		}
		gone, err := s.db.Gone(name)
		if err != nil {
			return err
		}
		if gone {
			records = pipeline.Missed(records)
		}
		all = append(all, records...)
	}
	if err := to.RestoreRules(route, all); err != nil {
		s.log.Warn("what rules about time knew is lost in part", "err", err)
	}
	return nil
}

// inherit puts what a route owed under its former name under the present one. Where that cannot be written (a full disk is no reason not
// to run) the route waits for it, and tries again.
func (s *state) inherit(route *config.Route) (waits bool, err error) {
	if route.Was == "" {
		return false, nil
	}
	if owes, err := s.db.Owes(route.Was); err != nil || !owes {
		return false, err
	}
	own, err := s.db.Debt(route.Name)
	if err != nil {
		return false, err
	}
	failed := s.db.Rename(route.Was, route.Name, own.Last)
	if failed == nil {
		return false, nil
	}
	s.log.Warn("a route stands still until there is room for what it owed under its former name", "route", route.Name, "err", failed)
	before, err := s.db.Debt(route.Was)
	if err == nil {
		own, err = s.db.Debt(route.Name) // a part of it may have been moved
	}
	if err != nil {
		return false, err
	}
	return true, s.pipeline.Inherit(route.Name, route.Was, before, own)
}

// debt returns what a route owes in all, and as much of it as its memory may hold.
func (s *state) debt(route *config.Route, resource resolver) (head []checkpoint.Owed, debt checkpoint.Debt, err error) {
	if debt, err = s.db.Debt(route.Name); err != nil {
		return nil, debt, err
	}
	head, err = s.db.LoadRoute(route.Name, checkpoint.Part{Limit: route.Queue.Memory}, resource)
	return head, debt, err
}

// ReadRoute implements pipeline.Store.
func (s *state) ReadRoute(name string, part checkpoint.Part) ([]checkpoint.Owed, error) {
	return s.db.LoadRoute(name, part, *s.resource.Load())
}

// Soon implements pipeline.Store.
func (s *state) Soon() { s.writer.Soon() }

// Rename implements pipeline.Store.
func (s *state) Rename(ctx context.Context, was, name string, upTo uint64) error {
	if err := s.writer.Flush(ctx); err != nil {
		return err
	}
	return s.db.Rename(was, name, upTo)
}
