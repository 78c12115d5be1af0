package compile

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/explain"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
)

// silenced matches a comment, in YAML or in an expression, that marks a line as intended.
var silenced = regexp.MustCompile(`(#|//).*\bcheck: ok\b`)

// NotSilenced removes the warnings about lines with `# check: ok`.
func NotSilenced(warnings config.Problems, cfg *config.Config) config.Problems {
	return slices.DeleteFunc(slices.Clone(warnings), func(w config.Problem) bool { return silenced.MatchString(cfg.Line(w)) })
}

// Notes returns the warnings that `router check` prints about a plan of a valid configuration
// without a cluster, and that the router logs: those that are not silenced, the secrets without a
// value, and workers that are trusted like the leader.
func (p *Plan) Notes() config.Problems {
	return NotSilenced(slices.Concat(p.Warnings, p.Optional, p.Config.MissingSecrets(), p.Config.TrustedWorkers()), p.Config)
}

// use records the names that the expressions of a configuration refer to.
type use struct{ sources, indexes, defines map[string]bool }

func newUse() use { return use{make(map[string]bool), make(map[string]bool), make(map[string]bool)} }

// add records the names in an expression.
func (u use) add(p *cel.Program) {
	for _, names := range []struct {
		to    map[string]bool
		names []string
	}{{u.sources, p.Sources()}, {u.indexes, p.Indexes()}, {u.defines, p.Defines()}} {
		for _, name := range names.names {
			names.to[name] = true
		}
	}
}

func (c *compiler) warnf(p config.Problem) {
	p.Warning = true
	c.warnings = append(c.warnings, p)
}

// adviseRoutes warns of routes that do nothing, and of unused defines. None of the routes, which
// are those of the compiler, has problems.
func (c *compiler) adviseRoutes(ctx context.Context, routes []Route) {
	given := newGivenOps(c.cfg)
	for i := range routes {
		if routes[i].Config != c.cfg {
			continue
		}
		c.adviseOps(&routes[i], c.plan, given)
		c.adviseFilter(ctx, routes[i].Route)
		c.adviseWhen(&routes[i])
		adviseGroup(c, &routes[i])
		for _, w := range adviseWorkers(routes[i].Route) {
			c.warnf(w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Define)) {
		if e := c.cfg.Define[name]; !c.used.defines[name] {
			c.warnf(e.Problem(1, 0, "no expression uses it: remove it"))
		}
	}
}

// adviseRest warns of unused parts. The plan must not have problems.
func (c *compiler) adviseRest(p *Plan) {
	c.adviseSources(p)
	c.adviseComponents()
	for _, p := range emptyPaths(c.cfg) {
		c.warnf(p)
	}
}

// emptyPaths warns of paths of includes without a file.
func emptyPaths(cfg *config.Config) (warnings config.Problems) {
	for _, i := range cfg.Include {
		for k, item := range i.Node.At("files").Items() {
			if names, err := files.Match(i.Files[k]); err == nil && len(names) == 0 {
				warnings = append(warnings, item.Problemf("no file matches it now: routes are added when there is one"))
			}
		}
	}
	return warnings
}

// adviseOps warns of ops that no source of a route produces.
func (c *compiler) adviseOps(r *Route, p *Plan, given *givenOps) {
	selective, resync := false, len(r.Watches) > 0
	for _, name := range r.From {
		for i := range p.Sources[name].Specs {
			selective = selective || p.Sources[name].Specs[i].Selective()
		}
		resync = resync || c.cfg.Sources[name].Resync > 0
	}
	items := r.Node.At("ops").Items()
	if len(r.Upstream) > 0 {
		c.adviseDownstreamOps(r.Route, items, given.of(r.Route))
		return
	}
	for i, op := range r.Ops {
		if i >= len(items) {
			break // the default
		}
		switch {
		case op == event.Deselected.String() && !selective:
			c.warnf(items[i].Problemf("deselected never occurs: no source of the route has a selector; "+
				"remove it, or give %s a labelSelector, fieldSelector or namespaceSelector", r.From[0]))
		case op == event.Sync.String() && !resync:
			c.warnf(items[i].Problemf("sync occurs only after router resync, because no source of the route has resync; for a regular one, give %s "+
				"resync: 10m", r.From[0]))
		}
	}
}

// adviseDownstreamOps warns of ops that no upstream route passes to this one.
func (c *compiler) adviseDownstreamOps(r *config.Route, items []config.Node, given map[string]bool) {
	by := strings.Join(r.Upstream, ", ")
	for i, op := range r.Ops {
		switch {
		case i >= len(items) || given[op]:
		case op == event.Sync.String():
			c.warnf(items[i].Problemf("sync occurs only after router resync, because no upstream route (%s) produces it; for a regular one, add it to "+
				"their ops", by))
		default:
			c.warnf(items[i].Problemf("%s never occurs: no upstream route (%s) produces it; remove it, or add it to their ops", op, by))
		}
	}
}

// givenOps finds the ops that upstream routes pass on. It visits each route once, because chains
// may fork and join.
type givenOps struct {
	routes map[string]*config.Route
	known  map[string]map[string]bool // by the name of the route
}

func newGivenOps(cfg *config.Config) *givenOps {
	g := &givenOps{make(map[string]*config.Route), make(map[string]map[string]bool)}
	for _, r := range cfg.Routes {
		g.routes[r.Name] = r
	}
	return g
}

// of returns the ops that the upstream routes pass to a route. There are no cycles.
func (g *givenOps) of(r *config.Route) map[string]bool {
	if given, visited := g.known[r.Name]; visited {
		return given
	}
	given := make(map[string]bool)
	for _, name := range r.Upstream {
		upstream := g.routes[name]
		gets := g.of(upstream)
		for _, op := range upstream.Ops {
			given[op] = given[op] || len(upstream.Upstream) == 0 || gets[op]
		}
		given[event.Sync.String()] = given[event.Sync.String()] || len(upstream.Watches) > 0
	}
	g.known[r.Name] = given
	return given
}

// adviseFilter warns of a filter that is false for all deltas of a route. A filter for several
// sources may be false for some of them.
func (c *compiler) adviseFilter(ctx context.Context, r *config.Route) {
	if r.Filter == nil || r.When != nil {
		return
	}
	var found []config.Problem
	for _, source := range r.From {
		e := r.Filter.For(source)
		ops := r.Ops
		if len(r.Watches) > 0 {
			ops = append(slices.Clone(ops), event.Sync.String())
		}
		never, ok := c.never(ctx, e, source, ops)
		if !ok && r.Filter.By == nil {
			return
		}
		if !ok {
			continue
		}
		what := "the route can never match: "
		if r.Filter.By != nil && len(r.From) > 1 {
			what = fmt.Sprintf("the route can never match for %s: ", source)
		}
		at := e
		if define, ok := c.cfg.Define[never.Define]; ok {
			at = &define
			what = fmt.Sprintf("route %q can never match: ", r.Name)
		}
		found = append(found, at.Problem(never.Line, never.Column, what+never.Reason))
	}
	if len(found) > 0 && r.Filter.By == nil {
		found = found[:1]
	}
	for _, p := range found {
		c.warnf(p)
	}
}

// adviseWhen warns of a filter that holds over several updates: then each update of the object is
// an event. A route with a handler or a limit may need them all, so it gets no warning.
func (c *compiler) adviseWhen(r *Route) {
	if r.FilterProgram == nil || r.Filter.By != nil || !r.FilterProgram.IsState() || !slices.Contains(r.Ops, event.Updated.String()) {
		return
	}
	if r.When != nil || r.Handler != "" || r.Limit != nil || r.Debounce.Quiet > 0 || r.Batch.By != nil || len(r.Watches) > 0 || len(r.Upstream) > 0 {
		return
	}
	// A kubernetes sink applies a desired state, so repeated events are useful.
	if slices.ContainsFunc(r.To, func(t config.Target) bool { return t.Sink != "" && c.cfg.Sinks[t.Sink].Kind == "kubernetes" }) {
		return
	}
	c.warnf(r.Filter.Problem(1, 0, "matches at each update of an object while it holds; to report its begin and end, write when instead of "+
		"filter; to report changes only, add && changed(…)"))
}

func (c *compiler) never(ctx context.Context, e *config.Expr, source string, ops []string) (explain.Never, bool) {
	explainer, err := explain.New(c.env.Env, e.Text, cel.Filter, source)
	if err != nil {
		// Expressions for several sources may be compiled differently.
		return explain.Never{}, false
	}
	domain := explain.Domain{Namespaces: c.cfg.Sources[source].Namespaces}
	for _, name := range ops {
		if op, ok := event.ParseOp(name); ok {
			domain.Ops = append(domain.Ops, op)
		}
	}
	return explainer.Never(ctx, domain)
}

// adviseSources warns of unused sources and indexes.
func (c *compiler) adviseSources(p *Plan) {
	from := make(map[string]bool)
	for _, r := range p.Routes {
		for _, name := range r.From {
			from[name] = true
		}
	}
	for _, f := range c.cfg.Fragments {
		for _, name := range f.Scope.Sources {
			from[name] = true
		}
	}
	for _, i := range c.cfg.Include {
		for _, name := range i.Sources {
			from[name] = true
		}
	}
	granted, _, _ := c.cfg.CustomResources.Granted()
	for _, name := range granted {
		from[name] = true
	}
	for _, grants := range p.Grants {
		for _, g := range grants {
			c.used.sources[g.Source] = true
			c.used.indexes[g.Source+"."+g.Index] = true
			if g.Index == "" { // the grant includes all indexes
				for _, name := range append(index.Builtins(), slices.Collect(maps.Keys(c.cfg.Sources[g.Source].Indexes))...) {
					c.used.indexes[g.Source+"."+name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Sources)) {
		s := c.cfg.Sources[name]
		if !from[name] && !c.used.sources[name] {
			c.warnf(s.Problemf("is watched and cached, but neither a route nor a look-up uses it: remove it; if it is for " +
				"router get or the API, add # check: ok"))
			continue
		}
		for _, index := range slices.Sorted(maps.Keys(s.Indexes)) {
			if e := s.Indexes[index]; !c.used.indexes[name+"."+index] && len(e) > 0 {
				c.warnf(e[0].Problem(1, 0, "no expression and no handler uses it, and it costs CPU and memory: remove it; if it is for router get "+
					"or the API, add # check: ok"))
			}
		}
	}
}

// adviseComponents warns of handlers and sinks without a route.
func (c *compiler) adviseComponents() {
	handlers, sinks := make(map[string]bool), make(map[string]bool)
	for _, i := range c.cfg.Include {
		for _, name := range i.Handlers {
			handlers[name] = true
		}
		for _, name := range i.Sinks {
			sinks[name] = true
		}
	}
	for _, r := range c.plan.Routes {
		handlers[r.Handler] = true
		for _, t := range r.To {
			sinks[t.Sink] = true
		}
	}
	_, grantedSinks, grantedHandlers := c.cfg.CustomResources.Granted()
	for _, name := range grantedHandlers {
		handlers[name] = true
	}
	for _, name := range grantedSinks {
		sinks[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Handlers)) {
		if !handlers[name] {
			c.warnf(c.cfg.Handlers[name].Node.Problemf("no route uses it: remove it"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Sinks)) {
		if !sinks[name] {
			c.warnf(c.cfg.Sinks[name].Node.Problemf("no route uses it: remove it"))
		}
	}
}
