package expr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/pkg/schema"
)

// Warning is about what is allowed, but may not be meant.
type Warning struct {
	Issue

	Define string // the define whose text it is about; empty: the expression's own
}

// Warnings are about what the expression may cost, if that is more than an evaluation may, and about the fields that the expression takes for
// granted and that an object need not have: where that is not asked for with has() or .? or in. Each says how to write it instead, in an
// expression that compiles. Of objects of which nothing is known there are none of the latter, and none for an index: an object without the
// field is not in it, which is how indexes are meant.
func (p *Program) Warnings() (warnings []Warning) {
	programs := []*Program{p}
	for _, other := range p.others {
		programs = append(programs, other)
	}
	add := func(w Warning) {
		if !slices.Contains(warnings, w) {
			warnings = append(warnings, w)
		}
	}
	for _, w := range p.CostWarnings() {
		add(w)
	}
	for _, program := range programs {
		if p.usage == Index {
			break
		}
		for _, u := range program.units {
			o := optionals{program: program, unit: u, guards: make(map[string]bool)}
			o.find()
			for _, w := range o.warnings {
				add(w)
			}
		}
	}
	slices.SortFunc(warnings, func(a, b Warning) int {
		return cmp.Or(strings.Compare(a.Define, b.Define), a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Message, b.Message))
	})
	return warnings
}

// CostWarnings are those of [Program.Warnings] about what it may cost. They are known already.
func (p *Program) CostWarnings() (warnings []Warning) {
	programs := []*Program{p}
	for _, source := range slices.Sorted(maps.Keys(p.others)) {
		programs = append(programs, p.others[source])
	}
	for _, program := range programs {
		if w := program.costly; w != nil && !slices.Contains(warnings, *w) {
			warnings = append(warnings, *w)
		}
	}
	return warnings
}

// optionals looks through one text.
type optionals struct {
	program  *Program
	unit     unit
	guards   map[string]bool // paths that the text asks about
	inner    map[int64]bool  // parts of a longer chain
	warnings []Warning
}

func (o *optionals) find() {
	o.inner = make(map[int64]bool)
	root := o.unit.ast.NativeRep().Expr()
	walk(root, nil, func(e ast.Expr, _ []string) {
		if operand, ok := operandOf(e); ok {
			o.inner[operand.ID()] = true
		}
		switch {
		case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
			o.guards[pathOf(e)] = true
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In:
			o.guards[pathOf(e.AsCall().Args()[1])+"["+pathOf(e.AsCall().Args()[0])+"]"] = true
		}
	})
	warned := make(map[string]bool)
	walk(root, nil, func(e ast.Expr, _ []string) {
		if _, ok := operandOf(e); !ok || o.inner[e.ID()] {
			return
		}
		if step := o.firstOptional(e); step != nil && !warned[pathOf(step)] {
			warned[pathOf(step)] = true
			o.warn(e, step)
		}
	})
}

// operandOf returns what a field or an element is taken of.
func operandOf(e ast.Expr) (ast.Expr, bool) {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand(), true
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		return e.AsCall().Args()[0], true
	}
	return nil, false
}

// firstOptional is the first step of a chain that may lead nowhere.
func (o *optionals) firstOptional(e ast.Expr) (first ast.Expr) {
	for {
		operand, ok := operandOf(e)
		if !ok {
			return first
		}
		if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() && !o.guards[pathOf(e)] && o.mayLack(operand, e.AsSelect().FieldName()) {
			first = e
		}
		e = operand
	}
}

// mayLack reports whether an object of the operand's type need not have the field.
func (o *optionals) mayLack(operand ast.Expr, field string) bool {
	t := o.unit.ast.NativeRep().GetType(operand.ID())
	if t.Kind() != types.StructKind {
		return false
	}
	object := o.program.env.types.objects[t.TypeName()]
	if object == nil {
		return false
	}
	for name, f := range object.of.Fields {
		if slices.Contains(names(name), field) {
			return !f.Required && !isCertain(object.of, name)
		}
	}
	return false
}

// isCertain: what every object has, whatever its schema requires, or is a part of nearly every one.
func isCertain(of *schema.Type, field string) bool {
	if _, root := of.Fields["metadata"]; root {
		return slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "status"}, field)
	}
	return strings.HasSuffix(of.Name, "ObjectMeta") &&
		slices.Contains([]string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation"}, field)
}

// pathOf writes an expression so that equal ones are equal texts, as far as they are fields of variables.
func pathOf(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.LiteralKind:
		if s, ok := e.AsLiteral().(types.String); ok {
			return strconv.Quote(string(s))
		}
		return fmt.Sprint(e.AsLiteral().Value())
	case ast.SelectKind:
		return pathOf(e.AsSelect().Operand()) + "." + e.AsSelect().FieldName()
	case ast.CallKind:
		if e.AsCall().FunctionName() == operators.Index {
			return pathOf(e.AsCall().Args()[0]) + "[" + pathOf(e.AsCall().Args()[1]) + "]"
		}
	}
	return "#" + strconv.FormatInt(e.ID(), 10) // equal to nothing else
}

// warn: chain is the whole of what is read, step the part that may be absent.
func (o *optionals) warn(chain, step ast.Expr) {
	text := o.text()
	place := o.unit.ast.NativeRep().SourceInfo().GetStartLocation(step.ID())
	w := Warning{Define: o.unit.define}
	w.Line, w.Column = afterDot(text, max(1, place.Line()), max(0, place.Column()))
	w.Message = pathOf(step) + " may be absent, " + o.consequence()
	if mended := o.mended(text, chain, step); mended != "" {
		w.Message += "; if that is not meant: " + mended
	} else {
		w.Message += "; if that is not meant, ask with has(" + pathOf(step) + ")"
	}
	o.warnings = append(o.warnings, w)
}

func (o *optionals) consequence() string {
	switch o.program.usage {
	case Filter, Query, When:
		return "and nothing matches then"
	case Key:
		return "and the object itself is the key then"
	default:
		return "and the delta fails then"
	}
}

func (o *optionals) text() string { return o.unit.ast.Source().Content() }

// mended is the chain as it is written, with .? and what it is if it is absent; "" if that would not compile.
func (o *optionals) mended(text string, chain, step ast.Expr) string {
	info := o.unit.ast.NativeRep().SourceInfo()
	fallback, ok := fallbackOf(o.unit.ast.NativeRep().GetType(chain.ID()))
	start, known := info.GetOffsetRange(rootOf(chain).ID())
	dot, known2 := info.GetOffsetRange(step.ID())
	end, known3 := info.GetOffsetRange(chain.ID())
	runes := []rune(text)
	if !ok || !known || !known2 || !known3 || int(dot.Start) >= len(runes) || runes[dot.Start] != '.' || rootOf(chain).Kind() != ast.IdentKind {
		return ""
	}
	stop := endOfStep(runes, int(end.Start))
	if stop < 0 || start.Start > dot.Start {
		return ""
	}
	mended := string(runes[start.Start:dot.Start+1]) + "?" + string(runes[dot.Start+1:stop]) + ".orValue(" + fallback + ")"
	whole := string(runes[:start.Start]) + mended + string(runes[stop:])
	s := o.program.scope
	parsed, issues := s.cel.Parse(whole)
	if issues.Err() != nil || strings.ContainsAny(mended, "\n") {
		return ""
	}
	if _, failed := s.check("", whole, parsed); failed != nil {
		return ""
	}
	return mended
}

func rootOf(e ast.Expr) ast.Expr {
	for {
		operand, ok := operandOf(e)
		if !ok {
			return e
		}
		e = operand
	}
}

// endOfStep returns where the last step of a chain ends, whose dot or bracket is at i; -1 if that cannot be told.
func endOfStep(text []rune, i int) int {
	switch {
	case i >= len(text):
		return -1
	case text[i] == '.':
		for i++; i < len(text) && (text[i] == ' ' || text[i] == '\t'); i++ {
		}
		for i < len(text) && (text[i] == '_' || text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z') {
			i++
		}
		return i
	case text[i] == '[':
		quotes := bare(text)
		depth := 0
		for ; i < len(text); i++ {
			switch quotes[i] {
			case '[':
				depth++
			case ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	return -1
}

// fallbackOf is an empty value of a type.
func fallbackOf(t *types.Type) (string, bool) {
	switch t.Kind() {
	case types.StringKind:
		return `""`, true
	case types.IntKind:
		return "0", true
	case types.DoubleKind:
		return "0.0", true
	case types.BoolKind:
		return "false", true
	case types.ListKind:
		return "[]", true
	case types.MapKind:
		return "{}", true
	}
	return "", false
}
