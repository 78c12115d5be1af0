package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// Target is a destination of a route's events: a sink, or another route. In YAML a name is a sink,
// and {route: NAME} is a route.
type Target struct {
	Node  Node   `yaml:",self"`
	Sink  string `yaml:"-"` // empty: the target is a route
	Route string `yaml:"route,required" doc:"The route that gets the events. It has no from."`

	id string // of the route; set by [Parse]
}

// routePrefix is the prefix of the names of targets that are routes. The name of a sink has no
// colon.
const routePrefix = "route:"

// Name identifies the target in the state, metrics, dead letters and logs: the name of the sink, or
// route: and the id of the route. The id does not change when the route is renamed.
func (t *Target) Name() string {
	if t.Sink != "" {
		return t.Sink
	}
	return routePrefix + cmp.Or(t.id, t.Route)
}

// Is reports whether two targets are the same sink or the same route.
func (t *Target) Is(other *Target) bool { return t.Sink == other.Sink && t.Route == other.Route }

// String implements [fmt.Stringer] for messages: `sink "out"`, or `route "incidents"`.
func (t *Target) String() string {
	if t.Sink != "" {
		return "sink \"" + t.Sink + "\""
	}
	return "route \"" + t.Route + "\""
}

// unmarshal decodes the name of a sink, or a mapping with the key route.
func (t *Target) unmarshal(n Node) Problems {
	t.Node = n
	if n.IsZero() || n.yaml.Kind != yaml.MappingNode {
		if !n.IsZero() && n.yaml.Kind != yaml.ScalarNode {
			return Problems{n.Problemf("must be the name of a sink, or {route: NAME}, not %s", n.describe())}
		}
		text, problems := n.text()
		if t.Sink = text; text == "" && len(problems) == 0 {
			problems = Problems{n.Problemf("is empty: write the name of a sink, or {route: NAME}")}
		}
		return problems
	}
	if sink := n.At("sink"); !sink.IsZero() && sink.yaml.Kind == yaml.ScalarNode && n.At("route").yaml == nil {
		return Problems{n.Problemf("a sink is written by its name alone: write %s", sink.yaml.Value)}
	}
	var form struct {
		Route string `yaml:"route,required"`
	}
	problems := n.Decode(&form)
	t.Route = form.Route
	keys := n.Keys()
	switch {
	case len(keys) == 0:
		return Problems{n.Problemf("is empty: write the name of a sink, or {route: NAME}")}
	case !slices.Contains(keys, "route"): // report one problem only
		return problems[:1]
	case t.Route == "" && len(problems) == 0:
		problems = Problems{n.At("route").Problemf("is empty: write the name of a route")}
	}
	return problems
}

// hasFrom reports whether a route has the key from, with any value.
func (r *Route) hasFrom() bool { return slices.Contains(r.Node.Keys(), "from") }

// checkTargets checks that each target of a route exists and is listed once.
func (c *Config) checkTargets(r *Route, byName map[string]*Route) (problems Problems) {
	for i := range r.To {
		t := &r.To[i]
		sink, route := c.Sinks[t.Sink] != nil, byName[t.Route] != nil
		at := t.Node.At("route")
		switch {
		case slices.ContainsFunc(r.To[:i], func(o Target) bool { return o.Is(t) }) && t.Sink+t.Route != "":
			problems = append(problems, t.Node.Problemf("%s occurs twice: remove one", t))
		case t.Sink != "" && !sink && byName[t.Sink] != nil:
			problems = append(problems, t.Node.Problemf("there is no sink %q, but a route: write {route: %s}", t.Sink, t.Sink))
		case t.Sink != "" && !sink:
			problems = append(problems, t.Node.Problemf("%s", c.missing(kindSink, t.Sink)))
		case t.Route != "" && !route && c.Sinks[t.Route] != nil:
			problems = append(problems, at.Problemf("there is no route %q, but a sink: write %s alone", t.Route, t.Route))
		case t.Route != "" && !route && strings.Contains(t.Route, "/"):
			problems = append(problems, at.Problemf("the routes of an include deliver to sinks and to routes of their own file only: name a sink"))
		case t.Route != "" && !route:
			problems = append(problems, at.Problemf("there is no route %q%s", t.Route, similar.Suggest(t.Route, sortedKeys(byName))))
		case t.Route != "" && byName[t.Route].hasFrom():
			problems = append(problems, at.Problemf("route %q has from, so it takes only the deltas of its sources: remove its from, or name a route without one", t.Route))
		}
	}
	return problems
}

// chains links the routes that deliver to other routes.
type chains struct {
	routes   []*Route
	byName   map[string]*Route
	problems Problems
}

// linkRoutes checks the targets of all routes. It sets Upstream and From of the downstream routes.
func (c *Config) linkRoutes() Problems {
	l := chains{byName: make(map[string]*Route)}
	for _, r := range c.Routes {
		if r == nil {
			continue
		}
		l.routes = append(l.routes, r)
		if l.byName[r.Name] == nil && r.Name != "" {
			l.byName[r.Name] = r
		}
	}
	for _, r := range l.routes {
		l.problems = append(l.problems, c.checkTargets(r, l.byName)...)
	}
	for _, r := range l.routes {
		for i, target := range l.targets(r) {
			if target == nil {
				continue
			}
			if r.To[i].id = target.ID; !slices.Contains(target.Upstream, r.Name) {
				target.Upstream = append(target.Upstream, r.Name)
			}
		}
	}
	l.refuseCircles()
	l.refuseManyPaths()
	known := make(map[*Route][]string)
	for _, r := range l.routes {
		r.From = l.sourcesOf(r, known)
	}
	for _, r := range l.routes {
		l.check(r)
	}
	return l.problems
}

func (l *chains) problem(n Node, format string, args ...any) {
	l.problems = append(l.problems, n.Problemf(format, args...))
}

// targets returns the route of each target of r. nil: the target is a sink, or a route that takes
// no events.
func (l *chains) targets(r *Route) []*Route {
	routes := make([]*Route, len(r.To))
	for i := range r.To {
		if target := l.byName[r.To[i].Route]; target != nil && !target.hasFrom() {
			routes[i] = target
		}
	}
	return routes
}

// refuseCircles reports the routes that would get their own events back.
func (l *chains) refuseCircles() {
	done := make(map[string]bool)
	var visit func(r *Route, path []string)
	visit = func(r *Route, path []string) {
		path = append(path, r.Name)
		for i, next := range l.targets(r) {
			if next == nil {
				continue
			}
			if first := slices.Index(path, next.Name); first >= 0 {
				l.problem(r.To[i].Node, "routes deliver to each other in a circle: %s; an event would go round for ever: remove this target, or one of the others",
					strings.Join(append(slices.Clone(path[first:]), next.Name), " → "))
			} else if !done[next.Name] {
				visit(next, path)
			}
		}
		done[r.Name] = true
	}
	for _, r := range l.routes {
		if !done[r.Name] {
			visit(r, nil)
		}
	}
}

// maxPaths bounds the ways of an event from a route to the others. In chains that fork and join
// again and again, one delta would become 2^n events.
const maxPaths = 1000

// refuseManyPaths reports the first routes of chains with more than maxPaths paths. A chain that
// does not join has at most one path to each route, and may have any number of them.
func (l *chains) refuseManyPaths() {
	limit := max(maxPaths, len(l.routes))
	known := make(map[*Route]int)
	var paths func(r *Route) int
	paths = func(r *Route) int {
		if n, visited := known[r]; visited {
			return n
		}
		known[r] = 0 // ends the recursion in a circle
		n := 1
		for _, next := range l.targets(r) {
			if next != nil {
				n = min(n+paths(next), limit+1)
			}
		}
		known[r] = n
		return n
	}
	for _, r := range l.routes {
		if len(r.Upstream) == 0 && paths(r) > limit {
			l.problem(r.Node.At("to"), "an event of this route reaches other routes on more than %d paths, because routes behind it deliver to the same routes again and again, "+
				"and becomes an event on each: let fewer routes deliver to the same route", limit)
		}
	}
}

// sourcesOf returns the sources of a route. A downstream route has those of its upstream routes.
// known contains the results of visited routes and ends the recursion in a circle.
func (l *chains) sourcesOf(r *Route, known map[*Route][]string) (sources []string) {
	if len(r.Upstream) == 0 {
		return r.From
	}
	if sources, visited := known[r]; visited {
		return sources
	}
	known[r] = r.From
	for _, name := range r.Upstream {
		upstream := l.byName[name]
		if upstream == nil {
			continue // a route without a name is reported elsewhere
		}
		for _, source := range l.sourcesOf(upstream, known) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	known[r] = sources
	return sources
}

// check checks that a route has an input, and that a route without from has no key about objects.
func (l *chains) check(r *Route) {
	switch {
	case r.hasFrom(), r.Node.yaml == nil: // a route that is not a mapping is reported elsewhere
		return
	case len(r.Upstream) == 0:
		l.checkInput(r)
		return
	}
	by := strings.Join(r.Upstream, ", ")
	n := r.Node
	if r.When != nil {
		l.problem(n.At("when"), "is a condition of objects, and this route gets events: set it at the route that delivers to it (%s), and set ops here to entered or left", by)
	}
	if r.For > 0 {
		l.problem(n.At("for"), "is the duration of a condition or of an absence, and this route gets events: set it at the route that delivers to it (%s)", by)
	}
	if r.Existing == ExistingDeliver && !n.At("existing").IsZero() {
		l.problem(n.At("existing"), "applies to objects, and this route gets events: set it at the route that delivers to it (%s)", by)
	}
	if r.Deliver == DeliverLatest {
		l.problem(n.At("deliver"), "events of another route are not coalesced, because each may have another content: remove it; use batch.by to make one event of several, or limit to suppress some")
	}
	if r.Overflow == OverflowCoalesce && !n.At("overflow").IsZero() {
		l.problem(n.At("overflow"), "events of another route are not coalesced: remove it, and the routes that deliver to this one wait when its queue is full; or use dropOldest")
	}
	if len(r.Watches) > 0 {
		l.problem(n.At("watches"), "processes objects again, and this route gets events: set it at the route that delivers to it (%s)", by)
	}
	l.problems = append(l.problems, r.Filter.Check(n.At("filter"), r.From)...)
}

// checkInput reports a route without input. It reports nothing if there is already a problem with
// its from, or with a target that may be meant for it.
func (l *chains) checkInput(r *Route) {
	var known []string
	for _, f := range tags.Of(reflect.TypeFor[Route]()) {
		known = append(known, f.Key)
	}
	for _, key := range r.Node.Keys() {
		if near, _ := similar.Nearest(key, known); near == "from" {
			return
		}
	}
	for _, other := range l.routes {
		for i := range other.To {
			if t := &other.To[i]; t.Sink == "" && l.byName[t.Route] == nil {
				return
			}
		}
	}
	l.problem(r.Node, "from is missing: name its sources, or have another route deliver to it: {route: %s} under to", cmp.Or(r.Name, "NAME"))
}
