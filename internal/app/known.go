package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// learnRoutes finds out which routes of the configuration are not new: those that the state folder has heard of, under this name or
// the one that they had. Of those of old, which run, nothing is asked but what they inherit.
func (r *router) learnRoutes(ctx context.Context, old *parts) error {
	r.known, r.heirs = make(map[string]bool), make(map[string]bool)
	if r.state == nil {
		return nil
	}
	runs := func(name string) bool {
		return old.plan != nil && slices.ContainsFunc(old.plan.routes, func(p routePlan) bool { return p.Name == name })
	}
	asks := func(p routePlan) bool { return !runs(p.Name) || p.Was != "" && !runs(p.Was) }
	if !slices.ContainsFunc(r.plan.routes, asks) {
		return nil
	}
	if old.plan != nil {
		// What a route owed that was removed is on disk, once all is written that was collected.
		if err := r.state.writer.Flush(ctx); err != nil {
			return fmt.Errorf("what routes owed that come back cannot be read: %w", err)
		}
	}
	// A full disk is no reason not to run: what is long gone is there a little longer.
	if err := r.state.db.ExpireDebts(time.Now()); err != nil {
		r.log.Warn(notForgotten, "err", err)
	}
	for _, p := range r.plan.routes {
		if !asks(p) {
			continue
		}
		if err := r.learnRoute(p, runs); err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
	}
	return nil
}

func (r *router) learnRoute(p routePlan, runs func(name string) bool) error {
	known, err := r.state.db.KnowsRoute(p.Name)
	if err != nil {
		return err
	}
	r.known[p.Name] = known
	if p.Was == "" || runs(p.Was) {
		return nil
	}
	if known, err = r.state.db.KnowsRoute(p.Was); err != nil || !known {
		return err
	}
	r.known[p.Name] = true
	r.heirs[p.Name], err = r.state.db.Owes(p.Was)
	return err
}

// comeBack gives routes of a reload what is owed under their names and under those that they had before.
func (r *router) comeBack(change *pipeline.Change) error {
	appear := change.New()
	for _, p := range r.plan.routes {
		err := r.comesBack(change, p, slices.Contains(appear, p.Name))
		if err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
	}
	return nil
}

// comesBack gives a route what is owed. appears: it does not run now, so what it owes is in the state folder alone.
func (r *router) comesBack(change *pipeline.Change, p routePlan, appears bool) error {
	var own checkpoint.Debt
	var head []checkpoint.Owed
	name, was := "", ""
	if appears {
		name = p.Name
	}
	if r.heirs[p.Name] {
		was = p.Was
	}
	err := r.state.restoreRules(change, p.Name, name, was)
	if err != nil {
		return err
	}
	if appears {
		if head, own, err = r.state.debt(p.Route, r.resource); err != nil {
			return err
		}
	}
	if !r.heirs[p.Name] {
		if own.N == 0 {
			return nil
		}
		return change.Restore(p.Name, head, own)
	}
	before, err := r.state.db.Debt(p.Was)
	if err != nil {
		return err
	}
	return change.Inherit(p.Name, p.Was, before, own)
}

// introduce makes the next cut say that the routes are there. It is called while nothing is collected, together with what they are
// given of the objects that exist: so a route that is known has all of it.
func (s *state) introduce(routes []routePlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.introduced = s.introduced[:0]
	for _, p := range routes {
		s.introduced = append(s.introduced, p.Name)
	}
}

// takeIntroduced returns the routes that introduce was called with since the last time.
func (s *state) takeIntroduced() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.introduced
	s.introduced = nil
	return names
}
