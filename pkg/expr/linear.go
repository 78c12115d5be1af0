package expr

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// linear reports whether the time of an evaluation is bounded by the length of the expression times the size of what it reads, which the
// meter bounds: there is no loop, and each function takes time in proportion to its arguments. Such an evaluation cannot run away, and
// to count the cost of its steps would take as long as the steps.
func (p *Program) linear(tree *cel.Ast) bool {
	linear := !p.loops
	walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) {
		if e.Kind() == ast.CallKind && !slices.Contains(linearFunctions(), e.AsCall().FunctionName()) {
			linear = false
		}
	})
	return linear
}

func linearFunctions() []string {
	return []string{
		operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.Equals, operators.NotEquals,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.In, operators.Add, operators.Subtract,
		operators.Multiply, operators.Divide, operators.Modulo, operators.Negate, operators.Index, operators.OptIndex, operators.OptSelect,
		"size", "startsWith", "endsWith", "contains", "split", "lowerAscii", "upperAscii", "trim", "string", "int", "uint", "double", "bool",
		"dyn", "optional.of", "optional.none", "orValue", "or", "hasValue", "value", at + fnChanged, at + fnCount, at + fnGet, fnSHA256,
	}
}
