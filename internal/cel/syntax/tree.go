// Package syntax has queries about the tree and the text of an expression, and the names with a
// meaning in expressions.
package syntax

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// PartsOf returns the subexpressions of an expression that is no loop.
func PartsOf(e ast.Expr) (parts []ast.Expr) {
	switch e.Kind() {
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			parts = append(parts, e.AsCall().Target())
		}
		parts = append(parts, e.AsCall().Args()...)
	case ast.SelectKind:
		parts = append(parts, e.AsSelect().Operand())
	case ast.ListKind:
		parts = append(parts, e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			parts = append(parts, field.AsStructField().Value())
		}
	case ast.ComprehensionKind, ast.IdentKind, ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return parts
}

// Walk visits e and all its subexpressions, with the names that macros have bound there.
func Walk(e ast.Expr, local []string, visit func(e ast.Expr, local []string)) {
	visit(e, local)
	if e.Kind() != ast.ComprehensionKind {
		for _, part := range PartsOf(e) {
			Walk(part, local, visit)
		}
		return
	}
	c := e.AsComprehension()
	Walk(c.IterRange(), local, visit)
	Walk(c.AccuInit(), local, visit)
	result := append(slices.Clone(local), c.AccuVar())
	loop := append(slices.Clone(result), c.IterVar())
	if c.HasIterVar2() {
		loop = append(loop, c.IterVar2())
	}
	Walk(c.LoopCondition(), loop, visit)
	Walk(c.LoopStep(), loop, visit)
	Walk(c.Result(), result, visit)
}

// MaxID returns the highest id of a tree.
func MaxID(tree *cel.Ast) (highest int64) {
	Walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) { highest = max(highest, e.ID()) })
	return highest
}

// Literal returns the value of a literal text; false: the expression is none.
func Literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// OperandOf returns the operand of a field selection or an index.
func OperandOf(e ast.Expr) (ast.Expr, bool) {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand(), true
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		return e.AsCall().Args()[0], true
	}
	return nil, false
}

// RootOf returns the operand of the first field or index of a chain.
func RootOf(e ast.Expr) ast.Expr {
	for {
		operand, ok := OperandOf(e)
		if !ok {
			return e
		}
		e = operand
	}
}

// PathOf returns a text that is equal for equal expressions, as far as they are fields of
// variables.
func PathOf(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.LiteralKind:
		if s, ok := e.AsLiteral().(types.String); ok {
			return strconv.Quote(string(s))
		}
		return fmt.Sprint(e.AsLiteral().Value())
	case ast.SelectKind:
		return PathOf(e.AsSelect().Operand()) + "." + e.AsSelect().FieldName()
	case ast.CallKind:
		switch e.AsCall().FunctionName() {
		case operators.Index:
			return PathOf(e.AsCall().Args()[0]) + "[" + PathOf(e.AsCall().Args()[1]) + "]"
		case operators.OptSelect:
			return PathOf(e.AsCall().Args()[0]) + "." + strings.Trim(PathOf(e.AsCall().Args()[1]), `"`)
		}
	}
	return "#" + strconv.FormatInt(e.ID(), 10) // equal to nothing else
}

// WholeNumber returns the value of a literal whole number.
func WholeNumber(e ast.Expr) (int64, bool) {
	if e.Kind() != ast.LiteralKind {
		return 0, false
	}
	n, ok := e.AsLiteral().(types.Int)
	return int64(n), ok
}

// Added returns the element that each round of map() or filter() adds to the list; nil: it is
// another loop.
func Added(step ast.Expr) ast.Expr {
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional {
		step = step.AsCall().Args()[1]
	}
	if step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.Add {
		return nil
	}
	if list := step.AsCall().Args()[1]; list.Kind() == ast.ListKind && list.AsList().Size() == 1 {
		return list.AsList().Elements()[0]
	}
	return nil
}

// UnwrapOptional returns the type of the value of an optional, or the type itself.
func UnwrapOptional(t *cel.Type) *cel.Type {
	if t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName() && len(t.Parameters()) == 1 {
		return t.Parameters()[0]
	}
	return t
}
