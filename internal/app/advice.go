package app

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
)

// silenced is a comment, of YAML or in an expression, that says of a line that what it does is meant.
var silenced = regexp.MustCompile(`(#|//).*\bcheck: ok\b`)

// notSilenced leaves out the warnings about lines that say `# check: ok`.
func notSilenced(warnings config.Problems, text []byte) config.Problems {
	lines := strings.Split(string(text), "\n")
	return slices.DeleteFunc(slices.Clone(warnings), func(w config.Problem) bool {
		return w.Line > 0 && w.Line <= len(lines) && silenced.MatchString(lines[w.Line-1])
	})
}

// use is what the expressions of a configuration refer to.
type use struct{ sources, indexes, defines map[string]bool }

func newUse() use { return use{make(map[string]bool), make(map[string]bool), make(map[string]bool)} }

// add notes what an expression refers to.
func (u use) add(p *expr.Program) {
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

// adviseAll looks for routes that do nothing, and for parts that nothing uses. The plan has no problems.
func (c *compiler) adviseAll(ctx context.Context, p *plan) {
	for i := range p.routes {
		c.adviseOps(&p.routes[i], p)
		c.adviseFilter(ctx, p.routes[i].Route)
	}
	c.adviseSources(p)
	c.adviseComponents()
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Define)) {
		if e := c.cfg.Define[name]; !c.used.defines[name] {
			c.warnf(e.Problem(1, 0, "no expression uses it: remove it"))
		}
	}
}

// adviseOps warns of ops that no source of a route has.
func (c *compiler) adviseOps(r *routePlan, p *plan) {
	selective, resync := false, len(r.Requeue) > 0
	for _, name := range r.From {
		for i := range p.sources[name].watches {
			selective = selective || p.sources[name].watches[i].Selective()
		}
		resync = resync || c.cfg.Sources[name].Resync > 0
	}
	items := r.Node.At("on").Items()
	if len(r.FedBy) > 0 {
		c.adviseFedOps(r.Route, items)
		return
	}
	for i, op := range r.On {
		if i >= len(items) {
			break // the default
		}
		switch {
		case op == event.Deselected.String() && !selective:
			c.warnf(items[i].Problemf("deselected never comes: no source of the route has a labelSelector or fieldSelector that objects may leave; "+
				"remove it, or give %s one", r.From[0]))
		case op == event.Sync.String() && !resync:
			c.warnf(items[i].Problemf("sync comes from router resync only: no source of the route has resync; if it is to come by itself, give %s "+
				"resync: 10m", r.From[0]))
		}
	}
}

// adviseFedOps warns of ops that no route gives to this one.
func (c *compiler) adviseFedOps(r *config.Route, items []config.Node) {
	given := c.given(r)
	by := strings.Join(r.FedBy, ", ")
	for i, op := range r.On {
		switch {
		case i >= len(items) || given[op]:
		case op == event.Sync.String():
			c.warnf(items[i].Problemf("sync comes from router resync only: no route that feeds this one (%s) gives it any; if it is to come by itself, add it to "+
				"their on", by))
		default:
			c.warnf(items[i].Problemf("%s never comes: no route that feeds this one (%s) gives it any; remove it, or add it to their on", op, by))
		}
	}
}

// given returns the ops that those give to a route that feed it. There are no circles.
func (c *compiler) given(r *config.Route) map[string]bool {
	given := make(map[string]bool)
	for _, feeder := range c.cfg.Routes {
		if !slices.Contains(r.FedBy, feeder.Name) {
			continue
		}
		gets := c.given(feeder)
		for _, op := range feeder.On {
			given[op] = given[op] || len(feeder.FedBy) == 0 || gets[op]
		}
		given[event.Sync.String()] = given[event.Sync.String()] || len(feeder.Requeue) > 0
	}
	return given
}

// adviseFilter warns of a filter that is false for all deltas that the route can get. A filter for several sources may be false for some.
func (c *compiler) adviseFilter(ctx context.Context, r *config.Route) {
	if r.Filter == nil || r.When != nil {
		return
	}
	var found []config.Problem
	for _, source := range r.From {
		e := r.Filter.For(source)
		on := r.On
		if len(r.Requeue) > 0 {
			on = append(slices.Clone(on), event.Sync.String())
		}
		never, ok := c.never(ctx, e, source, on)
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

func (c *compiler) never(ctx context.Context, e *config.Expr, source string, on []string) (expr.Never, bool) {
	explainer, err := c.env.Explain(e.Text, expr.Filter, source)
	if err != nil {
		return expr.Never{}, false // as for several sources, whose expressions may be compiled otherwise
	}
	domain := expr.Domain{Namespaces: c.cfg.Sources[source].Namespaces}
	for _, name := range on {
		if op, ok := event.ParseOp(name); ok {
			domain.Ops = append(domain.Ops, op)
		}
	}
	return explainer.Never(ctx, domain)
}

// adviseSources warns of sources and indexes that nobody uses.
func (c *compiler) adviseSources(p *plan) {
	from := make(map[string]bool)
	for _, r := range c.cfg.Routes {
		for _, name := range r.From {
			from[name] = true
		}
	}
	for _, grants := range p.grants {
		for _, g := range grants {
			c.used.sources[g.Source] = true
			c.used.indexes[g.Source+"."+g.Index] = true
			if g.Index == "" { // all of the source
				for _, name := range append(index.Builtins(), slices.Collect(maps.Keys(c.cfg.Sources[g.Source].Indexes))...) {
					c.used.indexes[g.Source+"."+name] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Sources)) {
		s := c.cfg.Sources[name]
		if !from[name] && !c.used.sources[name] {
			c.warnf(s.Problemf("it is watched and kept in memory, and no route takes it or looks anything up in it: remove it; if it is for " +
				"router get or the API, say so: # check: ok"))
			continue
		}
		for _, index := range slices.Sorted(maps.Keys(s.Indexes)) {
			if e := s.Indexes[index]; !c.used.indexes[name+"."+index] && len(e) > 0 {
				c.warnf(e[0].Problem(1, 0, "no expression and no handler looks it up, and it costs CPU and memory: remove it; if it is for router get "+
					"or the API, say so: # check: ok"))
			}
		}
	}
}

// adviseComponents warns of handlers and sinks that no route names.
func (c *compiler) adviseComponents() {
	handlers, sinks := make(map[string]bool), make(map[string]bool)
	for _, r := range c.cfg.Routes {
		handlers[r.Handle] = true
		for _, name := range r.To {
			sinks[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Handlers)) {
		if !handlers[name] {
			c.warnf(c.cfg.Handlers[name].Node.Problemf("no route has handle: %s, so it is never opened: remove it", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Sinks)) {
		if !sinks[name] {
			c.warnf(c.cfg.Sinks[name].Node.Problemf("no route has it under to, so nothing is ever written to it: remove it"))
		}
	}
}
