package app

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// feeding finds out which routes feed which, by the sinks whose factory has Feeds, and what is wrong with that.
type feeding struct {
	cfg      *config.Config
	targets  map[string]string        // by sink: the route that it feeds
	routes   map[string]*config.Route // by name
	unsure   bool                     // some sink may be meant to feed a route that is not known
	problems config.Problems
}

// feed returns the configuration with FedBy and From of the routes that others feed, which of them each sink feeds, and what is wrong.
func feed(cfg *config.Config, factories []plugins.Factory[plugins.Sink]) (fed *config.Config, targets map[string]string, problems config.Problems) {
	copied := *cfg
	copied.Routes = make([]*config.Route, len(cfg.Routes))
	f := feeding{cfg: &copied, targets: make(map[string]string), routes: make(map[string]*config.Route)}
	for i, r := range cfg.Routes {
		route := *r
		copied.Routes[i] = &route
		if f.routes[r.Name] == nil {
			f.routes[r.Name] = &route
		}
	}
	f.findTargets(factories)
	for _, r := range copied.Routes {
		f.findFed(r)
	}
	f.refuseCircles()
	known := make(map[*config.Route][]string)
	for _, r := range copied.Routes {
		r.From = f.sourcesOf(r, known)
	}
	for _, r := range copied.Routes {
		f.check(r)
	}
	return &copied, f.targets, f.problems
}

func (f *feeding) problem(n config.Node, format string, args ...any) {
	f.problems = append(f.problems, n.Problemf(format, args...))
}

// hasFrom reports whether a route says where its deltas come from, whatever it says.
func hasFrom(r *config.Route) bool { return slices.Contains(r.Node.Keys(), "from") }

// findTargets finds the route that each sink feeds.
func (f *feeding) findTargets(factories []plugins.Factory[plugins.Sink]) {
	told := make(map[string]bool)
	for _, sink := range slices.Sorted(maps.Keys(f.cfg.Sinks)) {
		c := f.cfg.Sinks[sink]
		factory := factoryOf(factories, c.Kind)
		if factory == nil || factory.Feeds == nil {
			continue
		}
		if len(factory.Check(c.Config)) > 0 { // reported already
			f.unsure = true
			continue
		}
		name, at := factory.Feeds(c.Config)
		switch target := f.routes[name]; {
		case target == nil:
			f.problem(at, "there is no route %q%s", name, config.Suggest(name, slices.Sorted(maps.Keys(f.routes))))
			f.unsure = true
		case !hasFrom(target):
			f.targets[sink] = name
		case !told[name]:
			told[name] = true
			f.problem(target.Node.At("from"), "a route has either from or a sink that feeds it, and sink %q does: remove from, or let the sink feed another route", sink)
		}
	}
}

// findFed tells the routes that r feeds.
func (f *feeding) findFed(r *config.Route) {
	by := make(map[string]string) // the sink that feeds a route
	items := r.Node.At("to").Items()
	for i, sink := range r.To {
		name, feeds := f.targets[sink]
		if !feeds {
			continue
		}
		if first, twice := by[name]; twice && first != sink && i < len(items) {
			f.problem(items[i], "sink %q gives the same events to route %q: remove one of the two", first, name)
			continue
		}
		by[name] = sink
		if target := f.routes[name]; !slices.Contains(target.FedBy, r.Name) {
			target.FedBy = append(target.FedBy, r.Name)
		}
	}
}

// feeds returns the routes that r feeds, in the order of its sinks, and the place of the sink of each.
func (f *feeding) feeds(r *config.Route) (names []string, at []config.Node) {
	items := r.Node.At("to").Items()
	for i, sink := range r.To {
		if name, ok := f.targets[sink]; ok && i < len(items) {
			names, at = append(names, name), append(at, items[i])
		}
	}
	return names, at
}

// refuseCircles finds the routes whose events would come back to them.
func (f *feeding) refuseCircles() {
	done := make(map[string]bool)
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		names, at := f.feeds(f.routes[name])
		path = append(path, name)
		for i, next := range names {
			if first := slices.Index(path, next); first >= 0 {
				f.problem(at[i], "routes feed each other in a circle: %s; what goes round it would never end: remove this sink, or one of the others",
					strings.Join(append(slices.Clone(path[first:]), next), " → "))
			} else if !done[next] {
				visit(next, path)
			}
		}
		done[name] = true
	}
	for _, r := range f.cfg.Routes {
		if !done[r.Name] {
			visit(r.Name, nil)
		}
	}
}

// sourcesOf returns the sources of a route: of one that others feed, theirs. known has those of the routes that were asked about, so that
// each is asked about once, and those on the way when they go round in a circle.
func (f *feeding) sourcesOf(r *config.Route, known map[*config.Route][]string) (sources []string) {
	if len(r.FedBy) == 0 {
		return r.From
	}
	if sources, asked := known[r]; asked {
		return sources
	}
	known[r] = r.From
	for _, name := range r.FedBy {
		for _, source := range f.sourcesOf(f.routes[name], known) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	known[r] = sources
	return sources
}

// check checks that a route gets something, and what a route that others feed cannot have.
func (f *feeding) check(r *config.Route) {
	n := r.Node
	switch {
	case hasFrom(r):
		return
	case len(r.FedBy) == 0:
		f.checkUnfed(r)
		return
	}
	by := strings.Join(r.FedBy, ", ")
	refuse := func(key, reason string) { f.problem(n.At(key), "%s", reason) }
	if r.When != nil {
		refuse("when", "asks about objects, and this route gets events: set it at the route that feeds it ("+by+"), and let on here be entered or left")
	}
	if r.For > 0 {
		refuse("for", "says how long an object must be as it is, and this route gets events: set it at the route that feeds it ("+by+")")
	}
	if r.Existing == config.ExistingDeliver {
		refuse("existing", "is about objects, and this route gets events: set it at the route that feeds it ("+by+")")
	}
	if r.Deliver == config.DeliverLatest {
		refuse("deliver", "events of another route are not folded, each may say something else: remove it; batch.by makes one event of several, limit leaves some out")
	}
	if r.Overflow == config.OverflowFold && !n.At("overflow").IsZero() {
		refuse("overflow", "events of another route are not folded: remove it, and the routes that feed this one wait when its queue is full; or use dropOldest")
	}
	if len(r.Requeue) > 0 {
		refuse("requeue", "puts objects through, and this route gets events: set it at the route that feeds it ("+by+")")
	}
	f.problems = append(f.problems, r.Filter.Check(n.At("filter"), r.From)...)
}

// checkUnfed tells of a route that gets nothing.
func (f *feeding) checkUnfed(r *config.Route) {
	for _, sink := range slices.Sorted(maps.Keys(f.targets)) {
		if f.targets[sink] == r.Name {
			f.problem(r.Node, "from is missing, and no route has sink %q, which feeds this one, under to: name its sources, or write the sink there", sink)
			return
		}
	}
	if !f.unsure {
		f.problem(r.Node, "from is missing: name its sources, or have another route feed it, by a sink {route: {name: %s}}", cmp.Or(r.Name, "NAME"))
	}
}

// feeders checks what only a compiled plan shows: that nothing of Secrets has to get to the disk as the data of an event.
func (c *compiler) feeders(p *plan) {
	if c.cfg.State.Dir == "" {
		return
	}
	for i := range p.routes {
		r := &p.routes[i]
		items := r.Node.At("to").Items()
		for k, sink := range r.To {
			target, feeds := p.feeds[sink]
			if !feeds || k >= len(items) {
				continue
			}
			for _, source := range c.secretsOf(r) {
				c.problems = append(c.problems, items[k].Problemf("what route %q owes is kept in state.dir, events of this route included, and what is made of "+
					"Secrets (source %q) is never written to disk: do the work of both in one route, or do without state.dir", target, source))
			}
		}
	}
}

// secretsOf returns the sources with Secrets that a route makes its events of: its own, even if their data is cut out, since of what is owed
// about them only the identity is written; and those with data that it looks things up in. Those of what feeds it are told there.
func (c *compiler) secretsOf(r *routePlan) (sources []string) {
	for _, source := range r.From {
		if s := c.cfg.Sources[source]; s != nil && s.Resource == "v1/secrets" && len(r.FedBy) == 0 {
			sources = append(sources, source)
		}
	}
	for _, source := range r.lookups() {
		if s := c.cfg.Sources[source]; s != nil && s.Secrets && !slices.Contains(r.From, source) {
			sources = append(sources, source)
		}
	}
	return sources
}

// eventOf refuses `event` and `events` in an expression of a route that no other feeds.
func (c *compiler) eventOf(r *config.Route, p *expr.Program, at func(source string) *config.Expr) {
	if p == nil || !hasFrom(r) {
		return // a route that gets nothing from anywhere is reported
	}
	use, ok := p.UseOf("event")
	if !ok {
		use, ok = p.UseOf("events")
	}
	if !ok {
		return
	}
	e := at(use.Source)
	if define, is := c.cfg.Define[use.Define]; is {
		e = &define
	}
	problem := e.Problem(use.Line, use.Column, "only a route that another route feeds has an event, see the sink of the kind route; this one has object")
	if use.Define != "" {
		problem.Message += " (in " + at(use.Source).Path() + ")"
	}
	c.problems = append(c.problems, problem)
}
