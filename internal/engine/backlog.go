package engine

import (
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// SpillShare is the share of state.maxSize, as 1/n, that the backlogs of all routes may have
// together: an unavailable sink must not fill the state file, which every part of the router needs.
const SpillShare = 2

// resolver returns the resource of a source; nil: there is no such source.
type resolver func(source string) *event.Resource

// Resolve sets the function that finds the resources of restored deltas.
func (s *State) Resolve(resource resolver) { s.resource.Store(&resource) }

// restoreRoute restores the backlog of a route.
func (s *State) restoreRoute(route *config.Route) error {
	if err := s.restoreRules(s.pipeline, route.ID); err != nil {
		return err
	}
	pending, backlog, err := s.backlog(route, *s.resource.Load())
	if err != nil {
		return err
	}
	return s.pipeline.Restore(route.ID, pending, backlog)
}

// restoreRules restores the state of the rules about time of the route with an id.
func (s *State) restoreRules(to interface {
	RestoreRules(id string, records []checkpoint.RuleRecord) error
}, id string,
) error {
	records, err := s.db.LoadRules(id)
	if err != nil {
		return err
	}
	gone, err := s.db.Gone(id)
	if err != nil {
		return err
	}
	if gone {
		records = pipeline.Missed(records)
	}
	if err := to.RestoreRules(id, records); err != nil {
		s.log.Warn("a part of the state of rules about time is lost", "err", err)
	}
	return nil
}

// backlog returns the amount of a route's backlog, and its head, up to the size of its memory.
func (s *State) backlog(route *config.Route, resource resolver) (head []checkpoint.Pending, backlog checkpoint.Backlog, err error) {
	if backlog, err = s.db.Backlog(route.ID); err != nil {
		return nil, backlog, err
	}
	head, err = s.db.LoadRoute(route.ID, checkpoint.Part{Limit: route.Queue.Memory, Bytes: int64(route.Queue.Bytes)}, resource)
	return head, backlog, err
}

// ReadRoute implements pipeline.Store.
func (s *State) ReadRoute(id string, part checkpoint.Part) ([]checkpoint.Pending, error) {
	return s.db.LoadRoute(id, part, *s.resource.Load())
}

// Soon implements pipeline.Store.
func (s *State) Soon() { s.Writer.Soon() }
