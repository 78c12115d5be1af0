package app

import (
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Components is what the router can be made of; cmd/router/components.go is the list.
type Components struct {
	Handlers []plugins.Factory[plugins.Handler]
	Sinks    []plugins.Factory[plugins.Sink]
	// Emit makes the handler of a route that has `emit` instead of `handle`; grouped: one that makes the events of a batch together.
	Emit func(p *expr.Program, cache expr.Cache, grouped bool) plugins.Handler
}

// Kinds describes the kinds, for the schema and the reference of the configuration.
func (c Components) Kinds() (kinds config.Kinds) {
	for i := range c.Handlers {
		kinds.Handlers = append(kinds.Handlers, c.Handlers[i].Describe())
	}
	for i := range c.Sinks {
		kinds.Sinks = append(kinds.Sinks, c.Sinks[i].Describe())
	}
	return kinds
}

// checkComponents lets the factory of each component check its part of the configuration.
func checkComponents[T any](what string, configured map[string]*config.Component, factories []plugins.Factory[T]) (problems config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		if c.Kind == "" {
			continue // reported already
		}
		f := factoryOf(factories, c.Kind)
		if f == nil {
			problems = append(problems, c.Node.Problemf("unknown kind of %s %q; there are: %s", what, c.Kind, kinds(factories)))
			continue
		}
		problems = append(problems, f.Check(c.Config)...)
	}
	return problems
}

func factoryOf[T any](factories []plugins.Factory[T], kind string) *plugins.Factory[T] {
	for i := range factories {
		if factories[i].Kind == kind {
			return &factories[i]
		}
	}
	return nil
}

func kinds[T any](factories []plugins.Factory[T]) string {
	names := make([]string, len(factories))
	for i := range factories {
		names[i] = factories[i].Kind
	}
	return strings.Join(names, ", ")
}
