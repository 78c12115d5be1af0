package config

import (
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/yamlfile"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// Expr is a CEL expression. ${…} is not expanded in it.
type Expr struct {
	Text string // the text for CEL, never empty
	node Node
}

// unmarshal accepts any scalar, because `true` and `1` are expressions too.
func (e *Expr) unmarshal(n Node) Problems {
	e.node = n
	switch {
	case n.IsZero():
		return Problems{n.Problemf("has no value: write an expression, or remove the key")}
	case n.yaml.Kind != yaml.ScalarNode:
		return Problems{n.Problemf(
			"must be a CEL expression, not %s: put an expression that begins with { or [ in quotes, or after | on lines of its own", n.describe())}
	case strings.TrimSpace(n.yaml.Value) == "":
		return Problems{n.Problemf("is empty: write an expression, or remove the key")}
	}
	e.Text = n.yaml.Value
	return nil
}

// Problem returns a problem at a position inside the expression. The line counts from 1 and the
// column from 0 in code points, as in CEL. The problem has the position in the file for all YAML
// styles: plain, quoted, literal (|) and folded (>). A position outside the expression becomes its
// nearest end.
func (e Expr) Problem(line, column int, message string) Problem {
	if e.node.yaml == nil {
		return e.node.problem(yamlfile.Place{Line: line, Column: column + 1}, message)
	}
	at := e.node.placeOf(runeIndex(e.Text, line, column))
	p := e.node.problem(at, message)
	p.Text = e.node.doc.file.Line(at.Line)
	return p
}

// Path returns the path of the expression, such as routes[2].filter.
func (e Expr) Path() string { return e.node.path }

// runeIndex returns the number of code points before a position.
func runeIndex(text string, line, column int) int {
	if line < 1 {
		return 0
	}
	index := 0
	for l := range strings.SplitSeq(text, "\n") {
		length := len([]rune(l))
		if line == 1 {
			return index + min(max(column, 0), length)
		}
		index += length + 1
		line--
	}
	return max(index-1, 0)
}

// Filter is the filter of a route: one expression for all its sources, or one per source.
type Filter struct {
	Expr // for all sources; empty if By is set
	// By has an expression per source. nil: all sources have the same expression.
	By map[string]*Expr
}

// For returns the expression for a source.
func (f *Filter) For(source string) *Expr {
	if e := f.By[source]; e != nil {
		return e
	}
	return &f.Expr
}

// Each returns all expressions, in the order of the sources' names.
func (f *Filter) Each() []*Expr {
	if f == nil {
		return nil
	}
	if f.By == nil {
		return []*Expr{&f.Expr}
	}
	var all []*Expr
	for _, source := range slices.Sorted(maps.Keys(f.By)) {
		all = append(all, f.By[source])
	}
	return all
}

func (f *Filter) unmarshal(n Node) (problems Problems) {
	if n.yaml == nil || n.yaml.Kind != yaml.MappingNode {
		return f.Expr.unmarshal(n)
	}
	f.node, f.By = n, make(map[string]*Expr)
	for _, source := range n.Keys() {
		e := &Expr{}
		if problems = append(problems, e.unmarshal(n.At(source))...); e.Text != "" {
			f.By[source] = e
		}
	}
	if len(n.Keys()) == 0 {
		problems = append(problems, n.Problemf("is empty: write an expression, or one by source, or remove the key"))
	}
	return problems
}

// Check compares the sources of By with those of the route. n is the node of the filter.
func (f *Filter) Check(n Node, from []string) (problems Problems) {
	if f == nil || f.By == nil {
		return nil
	}
	for _, source := range n.Keys() {
		if !slices.Contains(from, source) {
			problems = append(problems, n.At(source).Problemf("the route has no source %q%s", source, similar.Suggest(source, from)))
		}
	}
	for _, source := range from {
		if !slices.Contains(n.Keys(), source) {
			problems = append(problems, n.Problemf("has no expression for source %q: add one; true takes every delta", source))
		}
	}
	return problems
}

// Script is source code of a handler in the configuration. ${…} in it belongs to the code.
type Script struct {
	Text string
	node Node
}

func (s *Script) unmarshal(n Node) Problems {
	s.node = n
	switch {
	case n.IsZero(), n.yaml.Kind == yaml.ScalarNode && strings.TrimSpace(n.yaml.Value) == "":
		return Problems{n.Problemf("is empty: write the code after | on lines of its own, or remove the key")}
	case n.yaml.Kind != yaml.ScalarNode:
		return Problems{n.Problemf("must be code, not %s: write it after | on lines of its own", n.describe())}
	}
	s.Text = n.yaml.Value
	return nil
}

// Problem returns a problem at a position in the code. Line and column count from 1. The problem
// has the position in the file.
func (s Script) Problem(line, column int, message string) Problem {
	return Expr(s).Problem(line, column-1, message)
}
