package app

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// routes puts together what the routes of the configuration need at run time.
func (r *router) routes() []pipeline.Route {
	routes := make([]pipeline.Route, len(r.plan.routes))
	for i := range r.plan.routes {
		routes[i] = r.route(&r.plan.routes[i])
	}
	r.requeue = r.requeuesOf()
	return routes
}

// route puts together what one route of the configuration needs at run time.
func (r *router) route(p *routePlan) pipeline.Route {
	cache := r.cache(p.lookups())
	route := pipeline.Route{
		Name: p.Name, Version: r.routeVersion(p), Was: p.Was, Sources: p.From, Fed: len(p.FedBy) > 0, Ready: r.ready(p.Name, p.lookups()),
		HandlerName: p.Handle,
		Existing:    p.Existing == config.ExistingDeliver, Known: r.known[p.Name], Renew: r.heirs[p.Name],
		Deliver: deliver(p.Deliver), Overflow: overflow(p.Route), OnFailure: onFailure(p.OnFailure),
		Batch:   pipeline.Batch{Size: p.Batch.Size, Wait: p.Batch.Wait},
		Grouped: p.Batch.By != nil, Joint: p.Batch.By != nil && p.emit != nil,
		Debounce: pipeline.Debounce(p.Debounce), MaxAge: p.MaxAge,
		Concurrency: p.Concurrency, Capacity: p.Queue.Memory, Disk: int64(p.Queue.Disk),
		Retry: pipeline.Retry{Attempts: p.Retry.Attempts, Backoff: p.Retry.Backoff, Max: p.Retry.Max, MaxAge: p.Retry.MaxAge},
	}
	for _, name := range p.On {
		if op, ok := event.ParseOp(name); ok {
			route.Ops = append(route.Ops, op)
		}
	}
	if handler := r.handlers[p.Handle]; handler != nil {
		route.Handler = handler.it
	}
	for _, name := range p.To {
		sink := r.sinks[name]
		named := pipeline.NamedSink{Name: name, Version: sink.version, Sink: sink.it}
		if target, feeds := r.plan.feeds[name]; feeds {
			named.Sink, named.Feeds = nil, target
		}
		route.Sinks = append(route.Sinks, named)
	}
	if p.emit != nil {
		route.HandlerName, route.Handler = "emit", r.opts.Components.Emit(p.emit, cache, route.Joint)
	}
	if p.filter != nil {
		route.Filter = r.filter(p.Name, p.filter, p.Filter, cache)
	}
	switch {
	case p.when != nil:
		route.When = r.when(p)
		route.When.Filter, route.When.Version = r.filter(p.Name, p.when, p.When, cache), r.plan.conditionVersion(p)
	case p.For > 0:
		route.When, route.Gone = r.when(p), p.For
	}
	route.Key = keyOf(p.key, cache)
	if p.Limit != nil {
		route.Limit = pipeline.Limit{Key: keyOf(p.limit, cache), Every: p.Limit.Every, Burst: p.Limit.Burst}
	}
	return route
}

// keyOf returns a function that asks for a key; nil: there is none.
func keyOf(p *expr.Program, cache expr.Cache) func(context.Context, *event.Delta) (string, error) {
	if p == nil {
		return nil
	}
	return func(ctx context.Context, d *event.Delta) (string, error) {
		return p.Key(ctx, expr.Input{Delta: d, Cache: cache})
	}
}

// place says where in the configuration an evaluation failed, as file:line:column.
func (r *router) place(e *config.Expr, failed *expr.EvalError) string {
	return placeIn(r.plan.config, e, failed)
}

func placeIn(cfg *config.Config, e *config.Expr, failed *expr.EvalError) string {
	if define, ok := cfg.Define[failed.Define]; ok {
		e = &define
	}
	p := e.Problem(max(1, failed.Line), failed.Column, "")
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// cache returns what a route looks up in, of these sources only: a source whose indexes change must not be kept by routes that do not
// care. It is filled by fillCaches.
func (r *router) cache(sources []string) *index.Catalog {
	catalog := index.NewCatalog()
	r.fill = append(r.fill, func() { r.fillCatalog(catalog, sources) })
	return catalog
}

func (r *router) fillCatalog(catalog *index.Catalog, sources []string) {
	for _, name := range sources {
		var stores []*index.Store
		for _, spec := range r.plan.sources[name].watches {
			stores = append(stores, r.stores[spec])
		}
		catalog.Add(name, stores, r.indexes[name])
	}
}

// fillCaches makes the caches of routes, which no route has used before, and of handlers show what the stores have.
func (r *router) fillCaches() {
	for _, fill := range r.fill {
		fill()
	}
	r.fill = nil
}

// ready returns a channel that is closed when all the sources have synced; nil if there is none to wait for.
func (r *router) ready(route string, sources []string) <-chan struct{} {
	if len(sources) == 0 {
		return nil
	}
	synced := make(chan struct{})
	r.waits[route] = func(ctx context.Context) {
		for _, source := range sources {
			select {
			case <-r.factory.Synced(source):
			case <-ctx.Done():
				return
			}
		}
		close(synced)
	}
	return synced
}

func deliver(s string) pipeline.Deliver {
	if s == config.DeliverLatest {
		return pipeline.Latest
	}
	return pipeline.Every
}

// overflow is what a full queue does. What another route feeds is never folded: by default that one waits.
func overflow(r *config.Route) pipeline.Overflow {
	switch {
	case r.Overflow == config.OverflowDropOldest:
		return pipeline.DropOldest
	case r.Overflow == config.OverflowBlock, len(r.FedBy) > 0:
		return pipeline.Block
	}
	return pipeline.Fold
}

func onFailure(s string) pipeline.OnFailure {
	switch s {
	case config.OnFailureDrop:
		return pipeline.Drop
	case config.OnFailurePause:
		return pipeline.Pause
	}
	return pipeline.DeadLetter
}
