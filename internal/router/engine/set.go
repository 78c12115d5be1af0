package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/router/watches"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Set is the runtime set of one configuration: its open components, its stores and what its routes
// are made of. A reload exchanges it. It is used by one goroutine at a time.
type Set struct {
	env      *Env
	Plan     *compile.Plan
	sinks    map[string]*instance[plugins.Sink]
	handlers map[string]*instance[plugins.Handler]
	stores   map[informer.Spec]*index.Store
	indexes  map[string]map[string]index.Spec // by source and by the configured name
	// gives stores that are in use the indexes that they have in this configuration
	reindex []func()
	fill    []func()                         // see fillCaches
	Waits   map[string]func(context.Context) // by route; each ends when what it waits for is there
	Watches []*watches.Route                 // of the routes that declare it
	opened  int                              // how many components were ever opened
	// by id: the routes that the state folder has heard of
	Known map[string]bool
}

// NewSet makes the set of a plan, of which nothing is open.
func NewSet(env *Env, p *compile.Plan) *Set { return &Set{env: env, Plan: p} }

// Inventory returns what the API shows of the set.
func (s *Set) Inventory() *inspect.Inventory {
	handlers := make(map[string]plugins.Handler, len(s.handlers))
	for name, h := range s.handlers {
		handlers[name] = h.value
	}
	return inspect.NewInventory(s.Plan, handlers, s.stores, s.indexes)
}

// HasHandler reports whether a handler of this name is open.
func (s *Set) HasHandler(name string) bool { return s.handlers[name] != nil }

// CloseUnused closes what s has and the others do not: handlers first.
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

// cache returns what a route looks up in, of these sources only: a source whose indexes change must
// not be kept by routes that do not care. It is filled by fillCaches.
func (s *Set) cache(sources []string) *index.Catalog {
	catalog := index.NewCatalog()
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

// Install gives stores that are in use the indexes of s, and its routes and handlers what they look
// up. The watches are held.
func (s *Set) Install() {
	for _, swap := range s.reindex {
		swap()
	}
	s.reindex = nil
	s.fillCaches()
}

// fillCaches makes the caches of routes, which no route has used before, and of handlers show what
// the stores have.
func (s *Set) fillCaches() {
	for _, fill := range s.fill {
		fill()
	}
	s.fill = nil
}

// Resource returns what a source watches.
func (s *Set) Resource(source string) *event.Resource {
	of, ok := s.Plan.Sources[source]
	if !ok {
		return nil
	}
	return s.env.Factory.Resource(of.Specs[0])
}
