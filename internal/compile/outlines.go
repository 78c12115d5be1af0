package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/outline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// outlines finds mistakes in events that an emit makes for sinks which interpret events, such as
// kubernetes.
func (c *compiler) outlines(r *Route, known *schema.Set, kinds []plugins.SinkKind) {
	resources := resourcesOf(r)
	for _, target := range r.To {
		name := target.Sink
		if name == "" {
			continue
		}
		sink := c.cfg.Sinks[name]
		kind, ok := KindOf(kinds, sink.Kind).(outline.Outliner)
		switch {
		case !ok:
		case r.EmitProgram != nil:
			found, _ := r.EmitProgram.Outlines()
			for _, o := range found {
				c.outline(r.Route, name, &o, kind, resources, known)
			}
		case r.Handler == "" && len(r.Upstream) == 0:
			c.warnf(target.Node.Problemf("sink %q executes the instructions in events, and rejects those of this route, which only describe changes: add emit or handler", name))
		}
	}
}

// resourcesOf returns the different resources of the sources of a route, as the configuration
// writes them.
func resourcesOf(r *Route) (resources []string) {
	for _, source := range r.From {
		resources = append(resources, r.Config.Sources[source].Resource)
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}

// outline finds mistakes in one event for one sink.
func (c *compiler) outline(r *config.Route, sink string, o *cel.Outline, kind outline.Outliner, resources []string, known *schema.Set) {
	data := outlineOf(o)
	problems, written := kind.Outline(c.cfg.Sinks[sink].Config, &data, resources)
	for _, w := range written {
		if w.Subresource != "" {
			continue // it may be an object of another type
		}
		problems = append(problems, unknownFields(w.Body, resourceType(known, w.Resource))...)
	}
	for _, p := range problems {
		text := r.Emit
		if define, ok := c.cfg.Define[p.At.Define]; ok {
			text = &define
		}
		c.outlined(text.Problem(p.At.Line, p.At.Column, fmt.Sprintf("%s (for sink %q)", p.Message, sink)))
	}
}

func (c *compiler) outlined(p config.Problem) {
	if !silenced.MatchString(p.Text) && !slices.Contains(c.problems, p) {
		c.problems = append(c.problems, p)
	}
}

func outlineOf(o *cel.Outline) outline.Outline {
	out := outline.Outline{At: outline.At(o.At), Text: o.Text, IsMap: o.Map, IsAll: o.All}
	for i := range o.Members {
		m := &o.Members[i]
		out.Members = append(out.Members, outline.Member{Key: m.Key, At: outline.At(m.At), Value: outlineOf(&m.Value)})
	}
	return out
}

// resourceType returns the type of a resource's objects, or nil if it is unknown.
func resourceType(known *schema.Set, resource string) *schema.Type {
	group, version, name, err := config.ParseResource(resource)
	if err != nil {
		return nil
	}
	found, _ := known.Resource(group, version, name)
	return found.Type
}

// unknownFields finds fields of a literal that do not exist in its type.
func unknownFields(o *outline.Outline, t *schema.Type) (problems []outline.Problem) {
	if t == nil || !o.IsMap {
		return nil
	}
	for i := range o.Members {
		m := &o.Members[i]
		elem := t.Elem
		if t.Kind == schema.Object {
			field, ok := t.Fields[m.Key]
			if !ok {
				problems = append(problems, outline.Problem{At: m.At, Message: fmt.Sprintf("%s has no field %q%s",
					cmp.Or(t.Name, "the object"), m.Key, config.Suggest(m.Key, slices.Sorted(maps.Keys(t.Fields))))})
				continue
			}
			elem = field.Type
		} else if t.Kind != schema.Map {
			return nil
		}
		problems = append(problems, unknownFields(&m.Value, elem)...)
	}
	return problems
}

// eventReader is a kind of sinks that may have an expression about events. The expression is nil if
// there is none.
type eventReader interface {
	EventReads(node config.Node) (*config.Expr, []cel.EventRead)
}

// eventMembers returns the members of an event as a structured CloudEvent.
func eventMembers() []string {
	return []string{
		"specversion", "id", "source", "type", "subject", "time", "route", "k8suid", "k8sresourceversion", "redelivered", "traceparent",
		"datacontenttype", "data",
	}
}

// adviseBodies finds reads of members that no event has, in the expressions of sinks about events.
func adviseBodies(c *compiler, routes []Route) {
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Sinks)) {
		sink := c.cfg.Sinks[name]
		kind, ok := KindOf(c.kinds, sink.Kind).(eventReader)
		if !ok {
			continue
		}
		text, reads := kind.EventReads(sink.Config)
		if text == nil {
			continue
		}
		made, all := madeFor(c, name, routes)
		for i := range reads {
			if at, message := unmade(&reads[i], made, all); message != "" {
				c.outlined(text.Problem(at.Line, at.Column, message))
			}
		}
	}
}

// madeEvent is the known part of the data of an event.
type madeEvent struct {
	route string // whose emit makes it
	data  cel.Outline
	maybe bool // it comes by way of another route, which may leave it out
}

// madeFor returns the events with literal data for a sink that routes of the configuration itself
// make. all: no route makes others.
func madeFor(c *compiler, sink string, routes []Route) (made []madeEvent, all bool) {
	all = len(c.cfg.Include) == 0 && c.cfg.CustomResources.Routes == nil && c.cfg.CustomResources.ClusterRoutes == nil
	passed := newChains(routes)
	for i := range routes {
		r := &routes[i]
		if r.Config != c.cfg || !slices.ContainsFunc(r.To, func(t config.Target) bool { return t.Sink == sink }) {
			continue
		}
		if r.EmitProgram == nil {
			found, complete := passed.eventsOf(passed.makersOf(r.Name))
			made, all = append(made, found...), all && complete
			continue
		}
		found, complete := r.EmitProgram.Outlines()
		all = all && complete
		for _, o := range found {
			made = append(made, madeEvent{r.Name, o, false})
		}
	}
	return made, all
}

// chains knows the events with literal data of the routes of one configuration, or of a fragment,
// whose chains have no circle.
type chains struct {
	routes map[string]*Route
	made   map[string][]madeEvent // by a route whose emit makes no others
	makers map[string][]string    // by route: whose emits make its events; nil: there are others
}

func newChains(routes []Route) *chains {
	all := &chains{make(map[string]*Route, len(routes)), make(map[string][]madeEvent), make(map[string][]string)}
	for i := range routes {
		all.routes[routes[i].Name] = &routes[i]
	}
	return all
}

// mostMakers bounds the routes whose events are compared with the reads of one: those of a route
// behind more are not checked.
const mostMakers = 100

// makersOf returns the routes whose emits make all events that a route delivers; nil: it may
// deliver others.
func (c *chains) makersOf(name string) (makers []string) {
	if known, ok := c.makers[name]; ok {
		return known
	}
	defer func() { c.makers[name] = makers }()
	r := c.routes[name]
	switch {
	case r == nil: // it has a mistake
		return nil
	case r.EmitProgram != nil:
		found, all := r.EmitProgram.Outlines()
		if !all {
			return nil
		}
		for _, o := range found {
			c.made[name] = append(c.made[name], madeEvent{name, o, true})
		}
		return []string{name}
	case r.Handler != "":
		return nil
	}
	return c.above(r)
}

// above is makersOf for the events that a route gets.
func (c *chains) above(r *Route) (makers []string) {
	for _, name := range r.Upstream {
		some := c.makersOf(name)
		if some == nil {
			return nil
		}
		makers = append(makers, some...)
		slices.Sort(makers)
		if makers = slices.Compact(makers); len(makers) > mostMakers {
			return nil
		}
	}
	return makers
}

// eventsOf returns the events of makers. all: there are no others.
func (c *chains) eventsOf(makers []string) (made []madeEvent, all bool) {
	for _, name := range makers {
		made = append(made, c.made[name]...)
	}
	return made, makers != nil
}

// checkChains finds reads of fields that no event of the upstream routes has, in the expressions of
// a downstream route.
func checkChains(c *compiler, r *Route, of *chains) {
	made, all := of.eventsOf(of.above(r))
	if !all || len(made) == 0 {
		return
	}
	find := func(p *cel.Program, at func(source string) *config.Expr) {
		if p == nil {
			return
		}
		reads := cel.EventReads(p)
		for _, source := range slices.Sorted(maps.Keys(reads)) {
			for i := range reads[source] {
				if place, message := unmade(&reads[source][i], made, all); message != "" {
					c.outlined(at(source).Problem(place.Line, place.Column, message))
				}
			}
		}
	}
	one := func(e *config.Expr) func(string) *config.Expr { return func(string) *config.Expr { return e } }
	find(r.FilterProgram, r.Filter.For)
	find(r.EmitProgram, one(r.Emit))
	find(r.KeyProgram, one(cmp.Or(r.Key, r.Batch.By)))
	if r.Limit != nil {
		find(r.LimitProgram, one(r.Limit.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(r.With)) {
		e := r.With[name]
		find(r.WithPrograms[name], one(&e))
	}
}

// unmade explains why a read fails: for an event that has not the member if it is always read,
// else, and for events that may be left out, only if no event has it. Empty: it may not fail.
func unmade(read *cel.EventRead, made []madeEvent, all bool) (at cel.OutlineAt, message string) {
	if name := read.Path[0]; !slices.Contains(eventMembers(), name) {
		return read.At[0], fmt.Sprintf("events have no member %q%s", name, config.Suggest(name, eventMembers()))
	}
	some := false
	for i := range made {
		n, lacks := lacking(&made[i].data, read.Path)
		if lacks == "" {
			some = true
			continue
		}
		text := fmt.Sprintf("%s (of route %q)", lacks, made[i].route)
		if read.Always && !made[i].maybe {
			return read.At[n], text
		}
		if message == "" {
			at, message = read.At[n], text
		}
	}
	if some || !all {
		return at, ""
	}
	return at, message
}

// lacking says which part of a path below event the data do not have, and its place in the path.
// Empty: they may have it.
func lacking(data *cel.Outline, path []string) (n int, message string) {
	for n := 1; n < len(path) && path[0] == "data"; n++ {
		if !data.Map || !data.All {
			break
		}
		var keys []string
		var next *cel.Outline
		for k := range data.Members {
			if keys = append(keys, data.Members[k].Key); data.Members[k].Key == path[n] {
				next = &data.Members[k].Value
			}
		}
		if next == nil {
			return n, fmt.Sprintf("event.%s has no field %q%s", strings.Join(path[:n], "."), path[n], config.Suggest(path[n], keys))
		}
		data = next
	}
	return 0, ""
}
