package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Node is a piece of YAML that knows its place. Aliases are resolved: a piece reached through one has the place where it was
// written and the path by which it was reached.
//
// The zero Node stands for a piece that is absent. A Node is immutable and safe for concurrent use.
type Node struct {
	doc  *document
	yaml *yaml.Node // nil: absent
	at   place
	path string
}

// place is a position in a file, from 1, the column in characters.
type place struct{ line, column int }

func newNode(doc *document, y *yaml.Node, path string) Node {
	for y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	return Node{doc, y, place{y.Line, y.Column}, path}
}

// Path returns how the piece is reached, as in routes[2].filter.
func (n Node) Path() string { return n.path }

// IsZero reports whether the piece is absent, or a key with nothing after it (null).
func (n Node) IsZero() bool {
	return n.yaml == nil || n.yaml.Kind == yaml.ScalarNode && n.yaml.Tag == "!!null"
}

// At returns the value of a key. If n has no such key, the result has the key's path and the place of n, and is null: good for a
// problem about what is missing.
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

// Items returns the elements of a list. A scalar is a list of one; of anything else the result is empty.
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

// File returns the path of a file that the piece names: relative to the folder of the file that the piece stands in.
func (n Node) File(name string) string {
	if filepath.IsAbs(name) || n.doc == nil {
		return name
	}
	return filepath.Join(n.doc.dir, name)
}

// Problemf makes a problem of the piece. The message gives the reason and the remedy.
func (n Node) Problemf(format string, args ...any) Problem {
	return n.problem(n.at, fmt.Sprintf(format, args...))
}

func (n Node) problem(at place, message string) Problem {
	p := Problem{Line: at.line, Column: at.column, Path: n.path, Message: message}
	if n.doc != nil {
		p.File = n.doc.file
	}
	return p
}

// entry is a key of a mapping and its value.
type entry struct {
	key   string
	at    place // of the key
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
		key := scalarKey(k)
		switch {
		case isMerge(k):
			merged = append(merged, n.merged(v)...)
		case !seen[key]:
			seen[key] = true
			own = append(own, entry{key, place{k.Line, k.Column}, newNode(n.doc, v, keyPath(n.path, key))})
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

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.Tag == "!!merge" }

// scalarKey returns the text of a key. Keys that are no scalars have been reported when the document was read.
func scalarKey(k *yaml.Node) string {
	for k.Kind == yaml.AliasNode {
		k = k.Alias
	}
	return k.Value
}

// keyPath returns the path of a key: sources.pods, or labels["a.b/c"] if the key would not be one step.
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
