package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
)

// Node is a piece of YAML that knows its place. Aliases are resolved: a piece reached through one
// has the place where it was written and the path by which it was reached.
//
// The zero Node stands for a piece that is absent. A Node is immutable and safe for concurrent use.
type Node struct {
	doc  *document
	yaml *yaml.Node // nil: absent
	at   yamlfile.Place
	path string
}

func newNode(doc *document, y *yaml.Node, path string) Node {
	for y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	return Node{doc, y, yamlfile.Place{Line: y.Line, Column: y.Column}, path}
}

// Path returns how the piece is reached, as in routes[2].filter.
func (n Node) Path() string { return n.path }

// IsZero reports whether the piece is absent, or a key with nothing after it (null).
func (n Node) IsZero() bool {
	return n.yaml == nil || n.yaml.Kind == yaml.ScalarNode && n.yaml.Tag == "!!null"
}

// At returns the value of a key. If n has no such key, the result has the key's path and the place
// of n, and is null: good for a problem about what is missing.
func (n Node) At(key string) Node {
	for _, e := range n.entries() {
		if e.key == key {
			return e.value
		}
	}
	return Node{doc: n.doc, at: n.at, path: keyPath(n.path, key)}
}

// Keys returns the keys of a mapping in the order of the file, nil for anything else.
func (n Node) Keys() []string {
	var keys []string
	for _, e := range n.entries() {
		keys = append(keys, e.key)
	}
	return keys
}

// Items returns the elements of a list. A scalar is a list of one; of anything else the result is
// empty.
func (n Node) Items() []Node {
	if n.IsZero() {
		return nil
	}
	switch n.yaml.Kind {
	case yaml.ScalarNode:
		return []Node{n}
	case yaml.SequenceNode:
		items := make([]Node, len(n.yaml.Content))
		for i, y := range n.yaml.Content {
			items[i] = newNode(n.doc, y, n.path+"["+strconv.Itoa(i)+"]")
		}
		return items
	}
	return nil
}

// File returns the path of a file that the piece names: relative to the folder of the file that the
// piece stands in.
func (n Node) File(name string) string {
	if filepath.IsAbs(name) || n.doc == nil {
		return name
	}
	return filepath.Join(n.doc.file.Dir, name)
}

// Policy returns the policy that the file was read under.
func (n Node) Policy() Policy {
	if n.doc == nil {
		return Policy{}
	}
	return n.doc.policy
}

// Problemf makes a problem of the piece. The message gives the reason and the remedy.
func (n Node) Problemf(format string, args ...any) Problem {
	return n.problem(n.at, fmt.Sprintf(format, args...))
}

func (n Node) problem(at yamlfile.Place, message string) Problem {
	p := Problem{Line: at.Line, Column: at.Column, Path: n.path, Message: message}
	if n.doc != nil {
		p.File = n.doc.file.Name
	}
	return p
}

// entry is a key of a mapping and its value.
type entry struct {
	key   string
	at    yamlfile.Place // of the key
	value Node
}

// entries returns what a mapping holds, merge keys (<<) flattened, the first of several equal keys.
func (n Node) entries() []entry {
	if n.yaml == nil || n.yaml.Kind != yaml.MappingNode {
		return nil
	}
	var own, merged []entry
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		k, v := n.yaml.Content[i], n.yaml.Content[i+1]
		key := yamlfile.Key(k)
		switch {
		case yamlfile.IsMerge(k):
			merged = append(merged, n.merged(v)...)
		case !seen[key]:
			seen[key] = true
			own = append(own, entry{key, yamlfile.Place{Line: k.Line, Column: k.Column}, newNode(n.doc, v, keyPath(n.path, key))})
		}
	}
	for _, e := range merged {
		if !seen[e.key] {
			seen[e.key] = true
			own = append(own, e)
		}
	}
	return own
}

// merged returns what a merge key brings: the entries of a mapping, or of each mapping of a list.
func (n Node) merged(v *yaml.Node) []entry {
	from := newNode(n.doc, v, n.path)
	if from.yaml.Kind != yaml.SequenceNode {
		return from.entries()
	}
	var entries []entry
	for _, y := range from.yaml.Content {
		entries = append(entries, newNode(n.doc, y, n.path).entries()...)
	}
	return entries
}

// keyPath returns the path of a key: sources.pods, or labels["a.b/c"] if the key would not be one
// step.
func keyPath(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r != '-' && r != '_' && !isAlnum(r) }) {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func isAlnum(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// describe says what a piece is, for "must be …, not …".
func (n Node) describe() string {
	if n.IsZero() {
		return "nothing"
	}
	switch n.yaml.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.yaml.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	}
	return "text"
}

// placeOf returns the place in the file of a character of a scalar's value, counted from 0 in code
// points; that of the scalar if it cannot be told.
func (n Node) placeOf(index int) yamlfile.Place {
	if n.doc == nil || n.yaml == nil || n.yaml.Kind != yaml.ScalarNode {
		return n.at
	}
	places := yamlfile.Trace(n.doc.file, n.yaml)
	if len(places) == 0 {
		return n.at
	}
	return places[min(max(index, 0), len(places)-1)]
}

// text returns the scalar with its ${…} expanded. A problem has the place of the ${ that it is
// about, and quotes no variable's value.
func (n Node) text() (string, Problems) {
	if n.IsZero() {
		return "", Problems{n.Problemf("has no value: write one, or remove the key")}
	}
	if n.yaml.Kind != yaml.ScalarNode {
		return "", Problems{n.Problemf("must be text, not %s", n.describe())}
	}
	text, failed := yamlfile.Expand(n.yaml.Value)
	var problems Problems
	for _, f := range failed {
		problems = append(problems, n.problem(n.placeOf(f.Index), f.Message))
	}
	return text, problems
}

// isQuoted reports whether a scalar is text whatever it looks like.
func (n Node) isQuoted() bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.yaml.Style&quoted != 0 || n.yaml.Style&yaml.TaggedStyle != 0 && n.yaml.Tag == "!!str"
}
