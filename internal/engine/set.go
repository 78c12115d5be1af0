package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Set is the runtime set of one configuration: its open components, its stores and the parts of its
// routes. A reload replaces it. It is used by one goroutine at a time.
type Set struct {
	env      *Env
	Plan     *compile.Plan
	sinks    map[string]*instance[plugins.Sink]
	handlers map[string]*instance[plugins.Handler]
	stores   map[informer.Spec]*index.Store
	indexes  map[string]map[string]index.Spec // by source and by the configured name
	// set the indexes of this configuration in stores that are in use
	reindex []func()
	fill    []func()                         // see fillCaches
	Waits   map[string]func(context.Context) // by route; each ends when its sources have synced
	Watches []*watchedRoute                  // of the routes with watches
	Remote  remote                           // the routes with workers
	opened  int                              // the number of components opened so far
	// by id: the routes that the state folder knows
	Known map[string]bool
}

// NewSet makes the set of a plan. Nothing is open yet.
func NewSet(env *Env, p *compile.Plan) *Set {
	return &Set{env: env, Plan: p, Remote: remote{outbox: env.Work, plan: p}}
}

// Inventory returns the objects of the set that the API shows.
func (s *Set) Inventory() *inspect.Inventory {
	handlers := make(map[string]plugins.Handler, len(s.handlers))
	for name, h := range s.handlers {
		handlers[name] = h.value
	}
	return inspect.NewInventory(s.Plan, handlers, s.stores, s.indexes)
}

// HasHandler reports whether a handler of this name is open.
func (s *Set) HasHandler(name string) bool { return s.handlers[name] != nil }

// CloseUnused closes the components of s that others does not have: handlers first.
func (s *Set) CloseUnused(ctx context.Context, others *Set) error {
	return errors.Join(closeComponents(ctx, "handler", s.handlers, others.handlers), closeComponents(ctx, "sink", s.sinks, others.sinks))
}

func closeComponents[T interface{ Close(context.Context) error }](ctx context.Context, what string, all, others map[string]*instance[T]) error {
	var errs []error
	names := slices.Sorted(maps.Keys(all))
	slices.Reverse(names)
	for _, name := range names {
		if all[name] == others[name] {
			continue
		}
		if err := all[name].value.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing %s %s: %w", what, name, err))
		}
	}
	return errors.Join(errs...)
}

// cache returns the catalog for the look-ups of a route, with these sources only: changed indexes
// of a source must not make another route of those that do not use it. The look-ups see the scope
// of the route only. fillCaches fills it.
func (s *Set) cache(scope *config.Scope, sources []string) *index.Catalog {
	catalog := index.NewScopedCatalog(scope)
	s.fill = append(s.fill, func() { s.fillCatalog(catalog, sources) })
	return catalog
}

func (s *Set) fillCatalog(catalog *index.Catalog, sources []string) {
	for _, name := range sources {
		var stores []*index.Store
		for _, spec := range s.Plan.Sources[name].Specs {
			stores = append(stores, s.stores[spec])
		}
		catalog.Add(name, stores, s.indexes[name])
	}
}

// Install sets the indexes of s in stores that are in use, and fills the catalogs of its routes and
// handlers. The watches are held.
func (s *Set) Install() {
	for _, swap := range s.reindex {
		swap()
	}
	s.reindex = nil
	s.fillCaches()
}

// fillCaches fills the catalogs of routes, which no route has used before, and of handlers from the
// stores.
func (s *Set) fillCaches() {
	for _, fill := range s.fill {
		fill()
	}
	s.fill = nil
}

// Resource returns the resource of a source.
func (s *Set) Resource(source string) *event.Resource {
	of, ok := s.Plan.Sources[source]
	if !ok {
		return nil
	}
	return s.env.Factory.Resource(of.Specs[0])
}
