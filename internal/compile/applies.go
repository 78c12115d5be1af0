package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/outline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// applied is an object of which a route applies or patches the fields.
type applied struct {
	outline.Written

	route  *Route
	at     func(format string, args ...any) config.Problem
	fields map[string]*string // their values by their paths; nil: unknown
}

// adviseApplies warns of fields that two routes apply, because the field manager of each route owns
// the fields that it applied, and of a route that applies one object for many.
func adviseApplies(c *compiler, p *Plan) {
	var all []applied
	for i := range p.Routes {
		all = append(all, appliesOf(&p.Routes[i], c.kinds)...)
	}
	warned := make(map[[2]string]bool)
	for i := range all {
		b := &all[i]
		if b.Applies && b.Named != "" && computesKeys(b.Body) {
			c.warnf(b.at("the route applies one object for all objects that it sees, and computes keys of it: each apply removes the keys of the one before. " +
				"Write merge, or apply all keys at once, computed from a list of the objects"))
		}
		for k := range i {
			a := &all[k]
			pair := [2]string{a.route.Name, b.route.Name}
			if a.route == b.route || warned[pair] || !a.Applies && !b.Applies || !a.mayBe(b) {
				continue
			}
			if both := a.both(b); len(both) > 0 {
				warned[pair] = true
				c.warnf(b.at("route %q also writes %s of these objects: an apply of a field that another route owns is rejected, or with force takes it over; "+
					"let one route write it", a.route.Name, strings.Join(both, ", ")))
			}
		}
	}
}

// appliesOf returns the objects of which a route applies or patches known fields.
func appliesOf(r *Route, kinds []plugins.SinkKind) (all []applied) {
	if r.EmitProgram == nil {
		return nil
	}
	resources := resourcesOf(r)
	for _, target := range r.To {
		sink := r.Config.Sinks[target.Sink]
		if sink == nil {
			continue
		}
		kind, ok := KindOf(kinds, sink.Kind).(outline.Outliner)
		if !ok {
			continue
		}
		outlines, _ := r.EmitProgram.Outlines()
		for i := range outlines {
			data := outlineOf(&outlines[i])
			_, written := kind.Outline(sink.Config, &data, resources)
			for _, w := range written {
				fields := make(map[string]*string)
				fieldsOf(fields, "", w.Body)
				all = append(all, applied{w, r, positionOf(r, &outlines[i]), fields})
			}
		}
	}
	return all
}

// positionOf returns a function that reports something about an event of a route.
func positionOf(r *Route, o *cel.Outline) func(format string, args ...any) config.Problem {
	text := r.Emit
	if define, ok := r.Config.Define[o.At.Define]; ok {
		text = &define
	}
	return func(format string, args ...any) config.Problem {
		return text.Problem(o.At.Line, o.At.Column, fmt.Sprintf(format, args...))
	}
}

// mayBe reports whether two parts may be of one object.
func (a *applied) mayBe(b *applied) bool {
	if a.Cluster != b.Cluster || a.Named != b.Named || a.Own != b.Own || a.Subresource != b.Subresource {
		return false
	}
	if !a.Own {
		return a.Named != ""
	}
	return a.Resource == b.Resource && slices.ContainsFunc(a.route.From, func(x string) bool {
		return slices.ContainsFunc(b.route.From, func(y string) bool {
			one, other := a.route.Config.Sources[x], b.route.Config.Sources[y]
			return one.Resource == a.Resource && other.Resource == a.Resource && shareNamespace(one.Namespaces, other.Namespaces)
		})
	})
}

// shareNamespace reports whether lists of namespaces, which are all if they are empty, have one in
// common.
func shareNamespace(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(namespace string) bool { return slices.Contains(b, namespace) })
}

// both returns the fields that both parts write, unless they write the same text.
func (a *applied) both(b *applied) (paths []string) {
	for _, path := range slices.Sorted(maps.Keys(a.fields)) {
		for other, value := range b.fields {
			same := path == other && value != nil && a.fields[path] != nil && *value == *a.fields[path]
			if !same && (path == other || strings.HasPrefix(other, path+".") || strings.HasPrefix(path, other+".")) {
				paths = append(paths, path)
				break
			}
		}
	}
	return paths
}

// fieldsOf collects the fields of a part of an object with their values, except those that
// identify it. Computed keys of a map are unknown.
func fieldsOf(fields map[string]*string, path string, o *outline.Outline) {
	if !o.IsMap {
		fields[path] = o.Text
		return
	}
	for i := range o.Members {
		m := &o.Members[i]
		switch at := strings.TrimPrefix(path+"."+m.Key, "."); at {
		case "apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid":
		default:
			fieldsOf(fields, at, &m.Value)
		}
	}
}

// computesKeys reports whether a map in a part of an object has computed keys.
func computesKeys(o *outline.Outline) bool {
	return o.IsMap && (!o.IsAll || slices.ContainsFunc(o.Members, func(m outline.Member) bool { return computesKeys(&m.Value) }))
}
