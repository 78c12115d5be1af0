package config

import (
	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
)

// renamed lists the keys of routes and sources that were renamed before the first release. An entry
// with a value concerns only that value of the key.
var renamed = []struct{ owner, key, value, now string }{
	{"sources", "drop", "", "excludeFields"},
	{"routes", "on", "", "ops"},
	{"routes", "requeue", "", "watches"},
	{"routes", "check", "", "reevaluate"},
	{"routes", "handle", "", "handler"},
	{"routes", "overflow", "fold", "coalesce"},
}

// reportRenamed reports the old names below n, the whole document. It replaces each old name by the
// new one, so an old name causes only one problem.
func reportRenamed(n Node) (problems Problems) {
	for _, owner := range []string{"sources", "routes"} {
		all := n.At(owner)
		owned := all.Items()
		for _, e := range all.entries() {
			owned = append(owned, e.value)
		}
		for _, one := range owned {
			problems = append(problems, one.reportRenamed(owner)...)
		}
	}
	return problems
}

// reportRenamed reports the old names of one mapping.
func (n Node) reportRenamed(owner string) (problems Problems) {
	for _, r := range renamed {
		if len(problems) >= maxProblems {
			break
		}
		old := n.At(r.key)
		if r.owner != owner || old.yaml == nil || r.value != "" && old.yaml.Value != r.value {
			continue
		}
		if r.value != "" {
			problems = append(problems, old.Problemf("%s is called %s", r.value, r.now))
			old.yaml.Value = r.now
			continue
		}
		for _, e := range n.entries() {
			if e.key == r.key {
				old.at = e.at
			}
		}
		problems = append(problems, old.Problemf("is called %s", r.now))
		renameKey(n.yaml, r.key, r.now)
	}
	return problems
}

// reportRouteSinks reports the sinks of the former kind route and returns their names. It replaces
// each by {route: NAME} below to, so such a sink causes only one problem.
func reportRouteSinks(n Node) (sinks []string, problems Problems) {
	for _, e := range n.At("sinks").entries() {
		if keys := e.value.Keys(); len(keys) != 1 || keys[0] != "route" || len(problems) >= maxProblems {
			continue
		}
		key, form := e.value, "{route: NAME}"
		key.at = e.at
		name := e.value.At("route").At("name")
		if !name.IsZero() && name.yaml.Kind == yaml.ScalarNode {
			form = "{route: " + name.yaml.Value + "}"
			replaceTargets(n, e.key, name.yaml)
		}
		problems = append(problems, key.Problemf("a route is a target and no sink: remove this, and write %s in place of %s under to", form, e.key))
		sinks = append(sinks, e.key)
	}
	return sinks, problems
}

// replaceTargets replaces a sink by {route: name} in the key to of all routes.
func replaceTargets(n Node, sink string, name *yaml.Node) {
	for _, r := range n.At("routes").Items() {
		for _, target := range r.At("to").Items() {
			y := target.yaml
			if y.Kind != yaml.ScalarNode || y.Value != sink {
				continue
			}
			key := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "route", Line: y.Line, Column: y.Column}
			value := *name // y may be an alias of name
			*y = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: y.Line, Column: y.Column, Content: []*yaml.Node{&key, &value}}
		}
	}
}

// renameKey renames a key of a mapping, or of a mapping that is merged into it.
func renameKey(y *yaml.Node, old, now string) {
	for y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	if y.Kind == yaml.SequenceNode {
		for _, item := range y.Content {
			renameKey(item, old, now)
		}
		return
	}
	for i := 0; i+1 < len(y.Content); i += 2 {
		switch k := y.Content[i]; {
		case yamlfile.IsMerge(k):
			renameKey(y.Content[i+1], old, now)
		case yamlfile.Key(k) == old:
			k.Value = now
		}
	}
}
