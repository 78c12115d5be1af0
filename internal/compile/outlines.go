package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/outline"
	"github.com/deltarouter/deltarouter/internal/schema"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// outlines finds mistakes in events that an emit makes for sinks which interpret events, such as
// kubernetes.
func (c *compiler) outlines(r *Route, known *schema.Set, kinds []plugins.SinkKind) {
	var resources []string
	for _, source := range r.From {
		resources = append(resources, c.cfg.Sources[source].Resource)
	}
	slices.Sort(resources)
	resources = slices.Compact(resources)
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
			for _, o := range r.EmitProgram.Outlines() {
				c.outline(r.Route, name, &o, kind, resources, known)
			}
		case r.Handler == "" && len(r.Upstream) == 0:
			c.warnf(target.Node.Problemf("sink %q executes the instructions in events, and rejects those of this route, which only describe changes: add emit or handler", name))
		}
	}
}

// outline finds mistakes in one event for one sink.
func (c *compiler) outline(r *config.Route, sink string, o *expr.Outline, kind outline.Outliner, resources []string, known *schema.Set) {
	data := outlineOf(o)
	problems, written := kind.Outline(c.cfg.Sinks[sink].Config, &data, resources)
	for _, w := range written {
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

func outlineOf(o *expr.Outline) outline.Outline {
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
