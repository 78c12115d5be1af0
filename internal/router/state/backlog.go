package state

import (
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// SpillShare is the part of state.maxSize, as 1/n, that the backlogs of all routes may take
// together: a sink that is down must not fill the state file, without which nothing goes on.
const SpillShare = 2

// Resolver gives the resource that a source watches; nil: there is no such source.
type Resolver func(source string) *event.Resource

// Resolve sets where the resources of deltas come from that are read back.
func (s *State) Resolve(resource Resolver) { s.resource.Store(&resource) }

// restoreRoute gives a route its backlog.
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

// restoreRules gives the route of an id what its rules about time knew.
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
		s.log.Warn("what rules about time knew is lost in part", "err", err)
	}
	return nil
}

// backlog returns how much is pending for a route, and the head of it, as much as its memory may
// hold.
func (s *State) backlog(route *config.Route, resource Resolver) (head []checkpoint.Pending, backlog checkpoint.Backlog, err error) {
	if backlog, err = s.db.Backlog(route.ID); err != nil {
		return nil, backlog, err
	}
	head, err = s.db.LoadRoute(route.ID, checkpoint.Part{Limit: route.Queue.Memory}, resource)
	return head, backlog, err
}

// ReadRoute implements pipeline.Store.
func (s *State) ReadRoute(id string, part checkpoint.Part) ([]checkpoint.Pending, error) {
	return s.db.LoadRoute(id, part, *s.resource.Load())
}

// Soon implements pipeline.Store.
func (s *State) Soon() { s.Writer.Soon() }
