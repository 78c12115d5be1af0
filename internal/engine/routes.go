package engine

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// emitHandler is the name of the handler of routes with `emit`.
const emitHandler = "emit"

// Routes assembles the run-time parts of the configured routes.
func (s *Set) Routes() []spec.Settings {
	routes := make([]spec.Settings, len(s.Plan.Routes))
	for i := range s.Plan.Routes {
		routes[i] = s.route(&s.Plan.Routes[i])
	}
	s.Watches = s.watchesOf()
	return routes
}

// route assembles the run-time parts of one configured route.
func (s *Set) route(p *compile.Route) spec.Settings {
	cache := s.cache(p.Scope(), p.Lookups())
	route := spec.Settings{
		Name: p.Name, Version: s.routeVersion(p), ID: p.ID, Scope: p.Scope(), Sources: p.From, Downstream: len(p.Upstream) > 0, Ready: s.ready(p.Name, p.Lookups()),
		HandlerName: p.Instance, Secret: p.Secret, Shadow: p.Shadow,
		Existing: p.Existing == config.ExistingDeliver, Known: s.Known[p.ID],
		Deliver: deliver(p.Deliver), Overflow: overflow(p.Route), OnFailure: onFailure(p.OnFailure),
		Batch:   spec.Batch{Size: p.Batch.Size, Wait: p.Batch.Wait},
		Grouped: p.Batch.By != nil, Joint: p.Batch.By != nil && p.EmitProgram != nil,
		Debounce: spec.Debounce(p.Debounce), MaxAge: p.MaxAge,
		Concurrency: p.Concurrency, Capacity: p.Queue.Memory, Bytes: int64(p.Queue.Bytes), Disk: int64(p.Queue.Disk),
		Retry: spec.Retry{Attempts: p.Retry.Attempts, Backoff: p.Retry.Backoff, Max: p.Retry.Max, MaxAge: p.Retry.MaxAge},
	}
	for _, name := range p.Ops {
		if op, ok := event.ParseOp(name); ok {
			route.Ops = append(route.Ops, op)
		}
	}
	// The handler and the sinks of a route with workers may not be open in this process.
	if handler := s.handlers[p.Instance]; handler != nil {
		route.Handler = handlerOf(handler)
	}
	for i := range p.To {
		target := &p.To[i]
		named := spec.NamedSink{Name: target.Name(), Route: target.Route}
		if sink := s.sinks[target.Sink]; sink != nil {
			_, named.InOrder = compile.KindOf(s.env.Components.Sinks, s.Plan.Config.Sinks[target.Sink].Kind).(plugins.Ordered)
			named.Version, named.Sink = sink.version, sink.value
		}
		if p.Shadow {
			named = s.shadow(named)
		}
		route.Sinks = append(route.Sinks, named)
	}
	if p.EmitProgram != nil {
		route.HandlerName, route.Handler = emitHandler, s.env.Components.Emit(p.EmitProgram, cache, route.Joint)
	}
	route.With, route.Cached = withOf(p, cache), spec.Cached{Object: s.currentOf(p), Whole: s.ready(p.Name, secrets(s, p))}
	// It comes after the sinks, whose names it needs and which it replaces.
	s.Remote.replace(&route)
	if scope := p.Scope(); scope != nil {
		route.Allowance = s.env.Allowances.Of(scope.Prefix)
	}
	if p.FilterProgram != nil {
		route.Filter = s.filter(p, p.FilterProgram, p.Filter, cache)
	}
	if p.WhenProgram != nil {
		route.When = s.when(p)
		route.When.Filter, route.When.Version = s.filter(p, p.WhenProgram, p.When, cache), p.ConditionVersion(s.Plan.Sources)
	} else if p.For > 0 { // without a condition, `for` holds deletes
		route.When, route.Hold = s.when(p), p.For
	}
	route.Key = keyOf(p.KeyProgram, cache, route.Allowance)
	if p.Limit != nil {
		route.Limit = spec.Limit{Key: keyOf(p.LimitProgram, cache, route.Allowance), Every: p.Limit.Every, Burst: p.Limit.Burst}
	}
	// Keys are saved with the backlog, and those of a Secret may be its content.
	if len(p.SecretSources) > 0 && s.env.State != nil {
		route.Key, route.Limit.Key = s.env.State.Hashed(route.Key), s.env.State.Hashed(route.Limit.Key)
	}
	return route
}

// currentOf returns a function that returns the cached object of a delta of a route, unless the
// cache keeps only the identity.
func (s *Set) currentOf(p *compile.Route) func(*event.Delta) *event.Object {
	var sources []string
	for _, name := range p.From {
		if p.Config.Sources[name].Cache != config.CacheIdentity {
			sources = append(sources, name)
		}
	}
	cache := s.cache(p.Scope(), sources)
	return func(d *event.Delta) *event.Object { return cache.Get(d.Source, d.Key().Namespace, d.Key().Name) }
}

// secrets returns the sources of Secrets of a route, of which the state folder has only identities,
// and the cache has more later.
func secrets(s *Set, p *compile.Route) (names []string) {
	for _, name := range p.From {
		if source := s.Plan.Sources[name]; s.env.State != nil && p.Config.Sources[name].Cache != config.CacheIdentity && len(source.Specs) > 0 {
			if r := source.Specs[0].Resource; r.Group == "" && r.Resource == "secrets" {
				names = append(names, name)
			}
		}
	}
	return names
}

// keyOf returns a function that evaluates a key, and charges the owner of the route; nil: the route
// has none.
func keyOf(p *cel.Program, cache cel.Cache, owner *allowance.Owner) func(context.Context, *event.Delta) (string, error) {
	if p == nil {
		return nil
	}
	return func(ctx context.Context, d *event.Delta) (string, error) {
		in := cel.Input{Delta: d, Cache: cache}
		if owner != nil {
			in.Budget = &cel.Budget{}
			began := owner.Now()
			defer func() { owner.Charge(allowance.Price(in.Budget.Spent(), owner.Now().Sub(began))) }()
		}
		return p.Key(ctx, in)
	}
}

func deliver(s string) spec.Deliver {
	if s == config.DeliverLatest {
		return spec.Latest
	}
	return spec.Every
}

// overflow returns the behaviour of a full queue. Events of an upstream route are never coalesced:
// by default that route waits.
func overflow(r *config.Route) spec.Overflow {
	if r.Overflow == config.OverflowDropOldest {
		return spec.DropOldest
	}
	if r.Overflow == config.OverflowBlock || len(r.Upstream) > 0 {
		return spec.Block
	}
	return spec.Coalesce
}

func onFailure(s string) spec.OnFailure {
	switch s {
	case config.OnFailureDrop:
		return spec.Drop
	case config.OnFailurePause:
		return spec.Pause
	}
	return spec.DeadLetter
}

// watchesOf makes the watches of the plan's routes. Their caches are filled by FillCaches.
func (s *Set) watchesOf() (all []*watchedRoute) {
	for i := range s.Plan.Routes {
		p := &s.Plan.Routes[i]
		if len(p.WatchPrograms) == 0 {
			continue
		}
		all = append(all, newWatchedRoute(p, s.env.State != nil, func(sources []string) *index.Catalog { return s.cache(p.Scope(), sources) }))
	}
	return all
}

// withOf returns the function that makes the values of with; nil: the route has none.
func withOf(p *compile.Route, cache cel.Cache) func(context.Context, *event.Delta) ([]byte, error) {
	if len(p.WithPrograms) == 0 {
		return nil
	}
	return func(ctx context.Context, d *event.Delta) ([]byte, error) {
		return cel.With(ctx, p.WithPrograms, cel.Input{Delta: d, Cache: cache})
	}
}
