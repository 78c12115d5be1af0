package check

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// GroupSize is a comparison of the number of the objects, or events, of a group with a number.
type GroupSize struct {
	Line, Column int   // of the comparison's first operand, counted as in [celerr.Issue]
	Least        int64 // the number of objects from which on the comparison can be decided
}

// GroupSizes returns the comparisons of the size of a group in a text.
func GroupSizes(u syntax.Unit) (found []GroupSize) {
	syntax.Walk(u.AST.NativeRep().Expr(), nil, func(e ast.Expr, local []string) {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
			return
		}
		args, more := e.AsCall().Args(), int64(0)
		at := slices.IndexFunc(args, func(arg ast.Expr) bool { return isGroupSize(arg, local) })
		if at < 0 {
			return
		}
		n, ok := syntax.WholeNumber(args[1-at])
		switch e.AsCall().FunctionName() {
		case operators.Greater, operators.LessEquals: // size > n and size <= n are decided at n + 1
			more = int64(1 - at)
		case operators.Less, operators.GreaterEquals:
			more = int64(at)
		case operators.Equals, operators.NotEquals:
		default:
			return
		}
		if ok {
			s := GroupSize{Least: n + more}
			s.Line, s.Column = u.Start(args[0])
			found = append(found, s)
		}
	})
	return found
}

// isGroupSize reports whether an expression is size(objects) or objects.size(), or that of events.
func isGroupSize(e ast.Expr, local []string) bool {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "size" {
		return false
	}
	of := e.AsCall().Args()
	if e.AsCall().IsMemberFunction() {
		of = []ast.Expr{e.AsCall().Target()}
	}
	if len(of) != 1 || of[0].Kind() != ast.IdentKind || slices.Contains(local, of[0].AsIdent()) {
		return false
	}
	return of[0].AsIdent() == syntax.VarObjects || of[0].AsIdent() == syntax.VarEvents
}

// CountsGroup reports whether a text counts the objects of a group.
func CountsGroup(u syntax.Unit) (counts bool) {
	syntax.Walk(u.AST.NativeRep().Expr(), nil, func(e ast.Expr, local []string) {
		if isGroupSize(e, local) && !counts {
			counts = true
		}
	})
	return counts
}
