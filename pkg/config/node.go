package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
)

// Node is a piece of YAML with its position. Aliases are resolved: a node behind an alias has the
// position of its definition and the path of its use.
//
// The zero Node is an absent piece. A Node is immutable and safe for concurrent use.
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

// Path returns the path of the node, such as routes[2].filter.
func (n Node) Path() string { return n.path }

// IsZero reports whether the node is absent or null (a key without a value).
func (n Node) IsZero() bool {
	return n.yaml == nil || n.yaml.Kind == yaml.ScalarNode && n.yaml.Tag == "!!null"
}

// isNull reports whether the node is present without a value.
func (n Node) isNull() bool { return n.yaml != nil && n.IsZero() }

// At returns the value of a key. If n has no such key, the result is null. It has the path of the
// key and the position of n, for a problem about a missing key.
func (n Node) At(key string) Node {
	for _, e := range n.entries() {
		if e.key == key {
			return e.value
		}
	}
	return Node{doc: n.doc, at: n.at, path: keyPath(n.path, key)}
}

// Keys returns the keys of a mapping in the order of the file. It returns nil for any other node.
func (n Node) Keys() []string {
	var keys []string
	for _, e := range n.entries() {
		keys = append(keys, e.key)
	}
	return keys
}

// Items returns the elements of a list. A scalar is a list with one element. Any other node has no
// elements.
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

// File returns the path of a file that the node names. It is relative to the folder of the
// configuration file.
func (n Node) File(name string) string {
	if filepath.IsAbs(name) || n.doc == nil {
		return name
	}
	return filepath.Join(n.doc.file.Dir, name)
}

// Policy returns the policy of [Load].
func (n Node) Policy() Policy {
	if n.doc == nil {
		return Policy{}
	}
	return n.doc.policy
}

// Problemf returns a problem at the node. The message has the cause and the remedy.
func (n Node) Problemf(format string, args ...any) Problem {
	return n.problem(n.at, fmt.Sprintf(format, args...))
}

func (n Node) problem(at yamlfile.Place, message string) Problem {
	p := Problem{Line: at.Line, Column: at.Column, Path: n.path, Message: message}
	if n.doc != nil {
		p.File, p.Line = n.doc.file.Where(at.Line)
	}
	return p
}

// entry is a key of a mapping and its value.
type entry struct {
	key   string
	at    yamlfile.Place // of the key
	value Node
}

// entries returns the entries of a mapping, with merge keys (<<) resolved. Of several equal keys it
// returns the first.
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

// merged returns the entries of a merge key: those of a mapping, or of each mapping of a list.
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

// keyPath returns the path of a key: sources.pods, or labels["a.b/c"] if the key contains
// separators.
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

// describe returns a description of the node, for "must be …, not …".
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

// placeOf returns the position in the file of a character in the value of a scalar. index counts
// code points from 0. If the position is unknown, it returns that of the scalar.
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

// text returns the scalar with ${…} expanded. A problem has the position of its ${, and quotes no
// variable's value.
func (n Node) text() (string, Problems) {
	if n.IsZero() {
		return "", Problems{n.Problemf("has no value: write one, or remove the key")}
	}
	if n.yaml.Kind != yaml.ScalarNode {
		return "", Problems{n.Problemf("must be text, not %s", n.describe())}
	}
	if n.doc != nil && n.doc.fragment && strings.Contains(strings.ReplaceAll(n.yaml.Value, "$${", ""), "${") {
		return "", Problems{n.Problemf("has ${…}, and only the configuration may read the environment of the router: write the value")}
	}
	text, failed := yamlfile.Expand(n.yaml.Value)
	var problems Problems
	for _, f := range failed {
		problems = append(problems, n.problem(n.placeOf(f.Index), f.Message))
	}
	return text, problems
}

// isQuoted reports whether a scalar is text regardless of its content.
func (n Node) isQuoted() bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.yaml.Style&quoted != 0 || n.yaml.Style&yaml.TaggedStyle != 0 && n.yaml.Tag == "!!str"
}

// JSON returns the YAML of the node as JSON. It keeps the order of the keys, expands ${…}, and
// keeps all digits of numbers. An unquoted scalar with a ${…} gets the type of its expanded text.
// The error is [Problems]: a variable that is not set, or a number that JSON does not have (.inf,
// .nan).
func (n Node) JSON() ([]byte, error) {
	var e jsonEncoder
	e.value(n)
	return e.b.Bytes(), e.problems.Err()
}

// Identity returns the content of the node for comparisons: it is that of JSON, but a text that
// cannot be expanded stays as it is, because ${…} in a [Script] or [Expr] need not be a variable.
func (n Node) Identity() string {
	var e jsonEncoder
	e.value(n)
	return e.b.String()
}

type jsonEncoder struct {
	b        bytes.Buffer
	problems Problems
}

func (e *jsonEncoder) value(n Node) {
	switch {
	case n.IsZero():
		e.b.WriteString("null")
	case n.yaml.Kind == yaml.MappingNode:
		e.b.WriteByte('{')
		for i, entry := range n.entries() {
			if i > 0 {
				e.b.WriteByte(',')
			}
			e.text(entry.key)
			e.b.WriteByte(':')
			e.value(entry.value)
		}
		e.b.WriteByte('}')
	case n.yaml.Kind == yaml.SequenceNode:
		e.b.WriteByte('[')
		for i, item := range n.Items() {
			if i > 0 {
				e.b.WriteByte(',')
			}
			e.value(item)
		}
		e.b.WriteByte(']')
	default:
		e.scalar(n)
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func (e *jsonEncoder) scalar(n Node) {
	text, problems := n.text()
	e.problems = append(e.problems, problems...)
	if n.isQuoted() {
		e.text(text)
		return
	}
	tag := n.yaml.Tag
	if text != n.yaml.Value {
		tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).ShortTag()
	}
	switch tag {
	case "!!null":
		e.b.WriteString("null")
	case "!!bool":
		e.b.WriteString(strings.ToLower(text))
	case "!!int", "!!float":
		e.number(n, text)
	default:
		e.text(text)
	}
}

// number writes a number unchanged if it is valid JSON, or else converts it (0x10, 1_000, .5).
func (e *jsonEncoder) number(n Node, text string) {
	if jsonNumber.MatchString(text) {
		e.b.WriteString(text)
		return
	}
	if i, ok := new(big.Int).SetString(text, 0); ok {
		e.b.WriteString(i.String())
		return
	}
	var f float64
	if (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).Decode(&f) == nil {
		if data, err := json.Marshal(f); err == nil {
			e.b.Write(data)
			return
		}
	}
	e.problems = append(e.problems, n.Problemf("is a number that JSON does not have: put it in quotes"))
	e.b.WriteString("null")
}

func (e *jsonEncoder) text(s string) {
	encoder := json.NewEncoder(&e.b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string never fails
	e.b.Truncate(e.b.Len() - 1)
}
