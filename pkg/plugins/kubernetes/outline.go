package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/outline"
	"github.com/deltarouter/deltarouter/internal/similar"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// outlined finds mistakes in the literals of an emit expression.
type outlined struct {
	allow    []grantConfig
	cluster  string
	problems []outline.Problem
	written  []outline.Written
}

// Outline implements [plugins.Outliner]. It finds literals that parse or the grants would reject
// for any object.
func (kind) Outline(node config.Node, data *outline.Outline, resources []string) ([]outline.Problem, []outline.Written) {
	var c sinkConfig
	if node.Decode(&c).Err() != nil || !data.IsAll {
		return nil, nil
	}
	o := outlined{allow: c.Allow}
	if c.Kubeconfig != "" || c.Context != "" {
		o.cluster = c.Kubeconfig + " " + c.Context
	}
	o.operation(data, resources)
	return o.problems, o.written
}

func (o *outlined) problem(at outline.At, format string, args ...any) {
	o.problems = append(o.problems, outline.Problem{At: at, Message: fmt.Sprintf(format, args...)})
}

func (o *outlined) operation(data *outline.Outline, resources []string) {
	var does *outline.Member
	for _, verb := range verbs() {
		m := data.Member(verb)
		if m != nil && does != nil {
			o.problem(m.At, "says both %s and %s: an operation has one verb; emit two events", does.Key, verb)
			return
		}
		if m != nil {
			does = m
		}
	}
	if does == nil {
		o.noVerb(data)
		return
	}
	known := append(takes(does.Key), does.Key)
	for i := range data.Members {
		if m := &data.Members[i]; !slices.Contains(known, m.Key) {
			o.problem(m.At, "%q does not stand beside %s%s", m.Key, does.Key, config.Suggest(m.Key, known))
		}
	}
	target := data.Member("target")
	if target != nil {
		resources = o.target(target)
	}
	subresource := ""
	if m := data.Member("subresource"); m != nil {
		if m.Value.Text == nil {
			return
		}
		subresource = *m.Value.Text
	}
	o.body(does, target != nil, subresource, resources)
}

// noVerb reports an event without an operation.
func (o *outlined) noVerb(data *outline.Outline) {
	for i := range data.Members {
		if m := &data.Members[i]; !slices.Contains([]string{"target", "subresource", "missing"}, m.Key) {
			o.problem(m.At, "a kubernetes sink does one of %s; %q is none%s",
				strings.Join(verbs(), ", "), m.Key, nearest(m.Key))
			return
		}
	}
	o.problem(data.At, "a kubernetes sink needs to know what to do: one of %s", strings.Join(verbs(), ", "))
}

func nearest(key string) string {
	if near, ok := similar.Nearest(key, verbs()); ok {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// target returns the resource of the target; nil: it is unknown.
func (o *outlined) target(m *outline.Member) []string {
	t := &m.Value
	if !t.IsMap {
		return nil
	}
	known := []string{"resource", "namespace", "name", "uid"}
	for i := range t.Members {
		if key := &t.Members[i]; !slices.Contains(known, key.Key) {
			o.problem(key.At, "%q is unknown in a target%s", key.Key, config.Suggest(key.Key, known))
		}
	}
	for _, needed := range []string{"resource", "name"} {
		if t.IsAll && t.Member(needed) == nil {
			o.problem(m.At, "a target needs a %s", needed)
			return nil
		}
	}
	resource := t.Member("resource")
	if resource == nil || resource.Value.Text == nil {
		return nil
	}
	if _, _, _, err := parseResource(*resource.Value.Text); err != nil {
		o.problem(resource.Value.At, "%v", err)
		return nil
	}
	return []string{*resource.Value.Text}
}

// body checks the value of the verb, and whether a grant covers any of the resources. The resource
// of an apply or create with a kind is unknown here.
func (o *outlined) body(does *outline.Member, named bool, subresource string, resources []string) {
	body := &does.Value
	if does.Key == verbCreate || does.Key == verbApply && (!body.IsAll || body.Member("kind") != nil) {
		resources = nil
		if name := nameIn(body); does.Key == verbApply && name != "" {
			o.written = append(o.written, outline.Written{Named: name, Cluster: o.cluster, Subresource: subresource, Applies: true, Body: body})
		}
	}
	if len(resources) == 0 {
		return
	}
	if !slices.ContainsFunc(resources, func(r string) bool { return o.granted(r, subresource, does.Key) }) {
		what := strings.Join(resources, " or ")
		if subresource != "" {
			what += ", subresource " + subresource
		}
		of := "the object of the delta; name another with target, or"
		if named {
			of = "the target;"
		}
		o.problem(does.At, "allow of the sink does not grant %s on %s, %s add it there", does.Key, what, of)
		return
	}
	if (does.Key == verbApply || does.Key == verbMerge) && len(resources) == 1 {
		o.written = append(o.written, outline.Written{
			Resource: resources[0], Own: !named, Cluster: o.cluster, Subresource: subresource, Applies: does.Key == verbApply, Body: body,
		})
	}
}

// nameIn returns a text that identifies the object in an apply; empty: it is computed. The
// namespace may be.
func nameIn(body *outline.Outline) string {
	metadata := body.Member("metadata")
	if metadata == nil {
		return ""
	}
	words := make([]string, 0, 4)
	for _, m := range []*outline.Member{body.Member("apiVersion"), body.Member("kind"), metadata.Value.Member("name")} {
		if m == nil || m.Value.Text == nil {
			return ""
		}
		words = append(words, *m.Value.Text)
	}
	if m := metadata.Value.Member("namespace"); m != nil && m.Value.Text != nil {
		words = append(words, *m.Value.Text)
	}
	return strings.Join(words, " ")
}

// granted reports whether a verb on a resource is granted in any namespace.
func (o *outlined) granted(resource, subresource, verb string) bool {
	group, _, name, err := parseResource(resource)
	if err != nil {
		return true // already reported
	}
	return slices.ContainsFunc(o.allow, func(g grantConfig) bool {
		grantedGroup, _, grantedName, err := parseResource(g.Resource)
		of := grant{subresources: g.Subresources}
		return err == nil && grantedGroup == group && grantedName == name && of.covers(subresource) && slices.Contains(g.Verbs, verb)
	})
}
