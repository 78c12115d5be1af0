// Package equality finds the conditions of a filter that compare a field with constants, and reads
// such fields without evaluating anything.
package equality

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Equality is a conjunct of a filter that compares a [Field] with constants: it is true if the
// field has one of the values. Its values are strings, or whole numbers, or bools; see [Field.Read]
// for their notation.
type Equality struct {
	Field Field
	// Values is sorted, and has each value once.
	Values []string
	// Leading: only equalities precede it. Then no other conjunct can be the first to fail.
	Leading bool

	define       string // the text, and the position in it
	line, column int
}

// Holds reports whether value is one of the values of the equality.
func (e *Equality) Holds(value string) bool {
	if len(e.Values) == 1 {
		return e.Values[0] == value
	}
	_, ok := slices.BinarySearch(e.Values, value)
	return ok
}

// Absent is the error of an evaluation in which a key on the way to the field is missing.
func (e *Equality) Absent(key string) error {
	return &celerr.EvalError{Define: e.define, Line: e.line, Column: e.column, Reason: fmt.Sprintf("no such key: %q", key), Class: celerr.ErrAbsent}
}

// Of splits a filter, see [cel.Program.Conjuncts]: units are the defines that it uses, and itself
// last.
func Of(units []syntax.Unit) (equalities []Equality, rest bool) {
	s := parter{units: units}
	s.part(units[len(units)-1])
	return s.equalities, s.rest
}

// Plain returns the field of an expression that is a single field of the object.
func Plain(units []syntax.Unit) (f *Field, ok bool) {
	s := parter{units: units}
	f = &Field{}
	main := units[len(units)-1]
	if !s.field(main, main.AST.NativeRep().Expr(), f) || f.root != fromObject || !f.fits(stringKind) {
		return nil, false
	}
	f.kind = stringKind
	f.name()
	return f, true
}

// parter collects the equalities of a program.
type parter struct {
	units      []syntax.Unit
	equalities []Equality
	rest       bool
}

func (s *parter) part(u syntax.Unit) { s.conjunct(u, u.AST.NativeRep().Expr()) }

func (s *parter) conjunct(u syntax.Unit, e ast.Expr) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		for _, arg := range e.AsCall().Args() {
			s.conjunct(u, arg)
		}
		return
	}
	if used, ok := s.define(e); ok {
		s.part(used)
		return
	}
	field, at, values := s.equality(u, e)
	if values == nil {
		s.rest = true
		return
	}
	place := at.unit.AST.NativeRep().SourceInfo().GetStartLocation(at.expr.ID())
	slices.Sort(values)
	s.equalities = append(s.equalities, Equality{
		Field: field, Values: slices.Compact(values), Leading: !s.rest,
		define: at.unit.Define, line: max(0, place.Line()), column: max(0, place.Column()),
	})
}

// define returns the define that an identifier stands for.
func (s *parter) define(e ast.Expr) (syntax.Unit, bool) {
	if e.Kind() != ast.IdentKind {
		return syntax.Unit{}, false
	}
	for _, u := range s.units {
		if u.Define != "" && u.Define == e.AsIdent() {
			return u, true
		}
	}
	return syntax.Unit{}, false
}

// located is a part of the tree of one text.
type located struct {
	unit syntax.Unit
	expr ast.Expr
}

// equality parses field == constant, constant == field, field in [constants], has(field), field and
// !field. No values: it is none of them.
func (s *parter) equality(u syntax.Unit, e ast.Expr) (f Field, at located, values []string) {
	var k kind
	at = located{u, e}
	switch call := e.AsCall(); call.FunctionName() {
	case operators.Equals:
		a, b := call.Args()[0], call.Args()[1]
		if a.Kind() == ast.LiteralKind {
			a, b = b, a
		}
		at.expr = a
		values, k = constants(b)
	case operators.In:
		at.expr = call.Args()[0]
		if call.Args()[1].Kind() == ast.ListKind {
			values, k = constants(call.Args()[1].AsList().Elements()...)
		}
	case operators.LogicalNot:
		at.expr = call.Args()[0]
		values, k = []string{"false"}, boolKind
	default:
		values, k = []string{"true"}, boolKind
	}
	if values == nil || !s.field(u, at.expr, &f) || !f.fits(k) {
		return f, at, nil
	}
	f.kind = k
	f.name()
	return f, at, values
}

// field parses the path of a field. It is false for anything else.
func (s *parter) field(u syntax.Unit, e ast.Expr, f *Field) bool {
	if used, ok := s.define(e); ok {
		return s.field(used, used.AST.NativeRep().Expr(), f)
	}
	switch e.Kind() {
	case ast.IdentKind:
		return f.from(e.AsIdent())
	case ast.SelectKind:
		selected := e.AsSelect()
		if !s.field(u, selected.Operand(), f) || f.final() || !f.step(selected.FieldName()) {
			return false
		}
		f.presence = selected.IsTestOnly()
		return !f.presence || f.hope == 0
	case ast.CallKind:
		return s.call(u, e.AsCall(), f)
	default:
		return false
	}
}

// call parses a["key"], a.?key, a[?"key"] and a.orValue(constant).
func (s *parter) call(u syntax.Unit, call ast.CallExpr, f *Field) bool {
	args := call.Args()
	switch name := call.FunctionName(); {
	case name == "orValue" && call.IsMemberFunction():
		values, k := constants(args[0])
		if values == nil || !s.field(u, call.Target(), f) || f.hope == 0 || f.final() {
			return false
		}
		f.fallback, f.kind = values[0], k
		return true
	case name == operators.Index || name == operators.OptSelect || name == operators.OptIndex:
		key, ok := syntax.Literal(args[1])
		if !ok || !s.field(u, args[0], f) || f.final() {
			return false
		}
		if name != operators.Index {
			f.optional()
		}
		if name == operators.OptSelect {
			return f.step(key)
		}
		return f.element(key)
	}
	return false
}

// constants returns literals of one kind as texts; nil: the kinds differ.
func constants(exprs ...ast.Expr) (values []string, k kind) {
	for _, e := range exprs {
		if e.Kind() != ast.LiteralKind {
			return nil, 0
		}
		value, own := constant(e)
		if own == 0 || k != 0 && k != own {
			return nil, 0
		}
		values, k = append(values, value), own
	}
	return values, k
}

func constant(e ast.Expr) (string, kind) {
	switch v := e.AsLiteral().(type) {
	case types.String:
		return string(v), stringKind
	case types.Int:
		return strconv.FormatInt(int64(v), 10), intKind
	case types.Bool:
		return strconv.FormatBool(bool(v)), boolKind
	}
	return "", 0
}
