package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
)

// Load reads a configuration: a file, the files of a folder as one, or standard input, "-". It also
// reads the included files. more has further fragments. See [Parse].
func Load(path string, policy Policy, more ...*Fragment) (*Config, Problems) {
	all, err := files.Read(path)
	switch {
	case err != nil:
		return nil, Problems{{Message: err.Error()}}
	case len(all) == 1:
		return Parse(all[0].Name, all[0].Data, policy, more...)
	}
	doc, root, problems := newDocument(policy, func() (*yamlfile.File, *yaml.Node, *yamlfile.Mistake) {
		return yamlfile.ParseAll(path, all)
	})
	return doc.parse(root, problems, all, more)
}

// Parse reads a configuration and returns all its problems, in the order of the file. file is the
// name in problems, and its folder is the base of relative paths. The policy decides which paths
// are allowed.
//
// With problems, the Config contains the valid parts, for further checks only: it must not be run.
// It is nil if nothing is valid.
//
// The problems of a fragment are in [Fragment.Problems], unless its scope is strict.
func Parse(file string, data []byte, policy Policy, more ...*Fragment) (*Config, Problems) {
	doc, root, problems := newDocument(policy, func() (*yamlfile.File, *yaml.Node, *yamlfile.Mistake) {
		return yamlfile.Parse(file, data)
	})
	return doc.parse(root, problems, []files.File{{Data: data}}, more)
}

// parse decodes a document and checks it.
func (d *document) parse(root Node, problems Problems, all []files.File, more []*Fragment) (*Config, Problems) {
	if root.yaml == nil {
		return nil, problems
	}
	cfg := &Config{Policy: d.policy, doc: d}
	problems = append(problems, reportRenamed(root)...)
	routeSinks, old := reportRouteSinks(root)
	problems = append(problems, old...)
	problems = append(problems, root.Decode(cfg)...)
	for _, name := range routeSinks {
		delete(cfg.Sinks, name)
	}
	problems = append(problems, cfg.checkAll(root)...)
	problems = append(problems, cfg.addFragments(more)...)
	sum := sha256.New()
	for _, f := range all {
		sum.Write(f.Data)
	}
	for _, f := range cfg.Fragments {
		fmt.Fprintf(sum, "\x00%s\x00%s", f.Key(), f.Data)
	}
	cfg.Hash = hex.EncodeToString(sum.Sum(nil)[:6])
	problems = problems.Sorted()
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], Problem{File: d.file.Name, Message: "has more problems than these: is it the right file?"})
	}
	return cfg, problems
}

// Line returns a line of the file of a problem, if it is a file of the configuration.
func (c *Config) Line(p Problem) string {
	if c.doc == nil {
		return ""
	}
	if line := c.doc.file.LineOf(p.File, p.Line); line != "" {
		return line
	}
	for _, f := range c.Fragments {
		if f.Name == p.File && f.Config != nil {
			return f.Config.Line(p)
		}
	}
	return ""
}

// maxProblems limits the number of problems, and so the memory for them.
const maxProblems = 1000

// document is the file of a tree of nodes.
type document struct {
	file     *yamlfile.File
	policy   Policy
	fragment bool // its text may not name variables

	mu      sync.Mutex // several goroutines decode parts at the same time
	secrets map[yamlfile.Place]located
}

// located is a Secret and its position.
type located struct {
	node   Node
	secret Secret
}

// ParseNode reads the YAML of one document. file is the name in problems, and its folder is the
// base of relative paths. All paths are allowed, and no programs.
func ParseNode(file string, data []byte) (Node, Problems) {
	return parseNode(file, data, Policy{})
}

func parseNode(name string, data []byte, policy Policy) (Node, Problems) {
	_, root, problems := newDocument(policy, func() (*yamlfile.File, *yaml.Node, *yamlfile.Mistake) {
		return yamlfile.Parse(name, data)
	})
	return root, problems
}

// newDocument reads the YAML of a document. The root is absent if it cannot be read.
func newDocument(policy Policy, read func() (*yamlfile.File, *yaml.Node, *yamlfile.Mistake)) (*document, Node, Problems) {
	f, root, m := read()
	doc := &document{file: f, policy: policy}
	if m != nil {
		return doc, Node{}, Problems{{File: cmp.Or(m.File, f.Name), Line: m.At.Line, Column: m.At.Column, Message: m.Message, Text: m.Text}}
	}
	return doc, newNode(doc, root, ""), audit(Node{doc: doc}, root, nil)
}

// audit reports mistakes of form that the YAML library accepts: duplicate keys, keys that are not
// text, merges of values that are not mappings, tags. It checks every mapping, independent of its
// decoder.
func audit(at Node, y *yaml.Node, problems Problems) Problems {
	n := Node{at.doc, y, yamlfile.Place{Line: y.Line, Column: y.Column}, at.path}
	if y.Style&yaml.TaggedStyle != 0 && !standardTag(y.Tag) {
		problems = append(problems, n.Problemf("has the tag %s, which has no meaning here: remove it", y.Tag))
	}
	switch y.Kind {
	case yaml.SequenceNode:
		for i, child := range y.Content {
			n.path = at.path + "[" + strconv.Itoa(i) + "]"
			problems = audit(n, child, problems)
		}
	case yaml.MappingNode:
		problems = auditMapping(n, problems)
	}
	return problems
}

func auditMapping(n Node, problems Problems) Problems {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		k, v := n.yaml.Content[i], n.yaml.Content[i+1]
		key := newNode(n.doc, k, n.path)
		key.at = yamlfile.Place{Line: k.Line, Column: k.Column}
		if key.yaml.Kind != yaml.ScalarNode {
			problems = append(problems, key.Problemf("a key must be text, not %s", key.describe()))
			continue
		}
		if yamlfile.IsMerge(k) {
			if !mergeable(v) {
				problems = append(problems, key.Problemf("<< needs a mapping or a list of mappings: write <<: *anchor"))
			}
			problems = audit(n, v, problems)
			continue
		}
		child := Node{doc: n.doc, path: keyPath(n.path, key.yaml.Value)}
		key.path = child.path
		if first, ok := seen[key.yaml.Value]; ok {
			problems = append(problems, key.Problemf("occurs twice, first in %s: remove one", n.doc.file.Ref(first)))
		} else {
			seen[key.yaml.Value] = k.Line
		}
		problems = audit(child, v, problems)
	}
	return problems
}

// mergeable reports whether a value can be merged into a mapping.
func mergeable(v *yaml.Node) bool {
	for v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	if v.Kind == yaml.SequenceNode {
		for _, y := range v.Content {
			for y.Kind == yaml.AliasNode {
				y = y.Alias
			}
			if y.Kind != yaml.MappingNode {
				return false
			}
		}
		return true
	}
	return v.Kind == yaml.MappingNode
}

func standardTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!merge", "":
		return true
	}
	return false
}

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
