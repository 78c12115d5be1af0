package check

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// edit replaces the arguments of one call. ids belong to the unit's own tree.
type edit struct {
	unit int
	id   int64
	args []any // string or int: becomes a literal; ast.Expr: stays
}

// Optimize implements cel.ASTOptimizer, which is cel-go's way to change a tree: it checks the
// result again and renumbers it.
func (r *resolver) Optimize(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
	main := len(r.units) - 1
	info := tree.SourceInfo()
	syntax.Shift(info, int32(main))
	root := tree.Expr()
	r.apply(ctx, main, root, func(id int64) int64 { return id })
	for n := main - 1; n >= 0; n-- {
		root = r.bind(ctx, n, root, info)
	}
	return ctx.NewAST(root)
}

// bind wraps root into cel.bind(name of unit n, its tree, root).
func (r *resolver) bind(ctx *cel.OptimizerContext, n int, root ast.Expr, info *ast.SourceInfo) ast.Expr {
	original := r.units[n].AST.NativeRep()
	body, bodyInfo := ctx.CopyAST(original)
	ids := make(map[int64]int64)
	pair(original.Expr(), body, ids)
	syntax.Shift(bodyInfo, int32(n))
	for id, offset := range bodyInfo.OffsetRanges() {
		info.SetOffsetRange(id, offset)
	}
	r.apply(ctx, n, body, func(id int64) int64 { return ids[id] })
	bound, _ := ctx.NewBindMacro(ctx.NewIdent(r.units[n].Define).ID(), r.units[n].Define, body, root)
	return bound
}

// apply makes the edits of unit n in its tree.
func (r *resolver) apply(ctx *cel.OptimizerContext, n int, tree ast.Expr, renumbered func(int64) int64) {
	byID := make(map[int64]edit)
	for _, edit := range r.edits {
		if edit.unit == n {
			byID[renumbered(edit.id)] = edit
		}
	}
	syntax.Walk(tree, nil, func(e ast.Expr, _ []string) {
		edit, ok := byID[e.ID()]
		if !ok || e.Kind() != ast.CallKind {
			return
		}
		old := e.AsCall().Args()
		args := []ast.Expr{ctx.NewIdent(syntax.VarInput)}
		given := len(args) // the number of arguments before the edit
		if syntax.HasType(e.AsCall().FunctionName(), old) {
			args = append(args, old[0]) // the type
			given++
		}
		for _, arg := range edit.args {
			switch arg := arg.(type) {
			case string:
				args = append(args, ctx.NewLiteral(types.String(arg)))
			case int:
				args = append(args, ctx.NewLiteral(types.Int(arg)))
			default: // one of the call's own arguments, which has another id in this tree
				args = append(args, old[len(old)-(len(edit.args)-(len(args)-given))])
			}
		}
		e.SetKindCase(ctx.NewCall(syntax.Prefix+e.AsCall().FunctionName(), args...))
	})
}

// pair maps the ids of a tree to those of its copy.
func pair(a, b ast.Expr, ids map[int64]int64) {
	var order []int64
	syntax.Walk(a, nil, func(e ast.Expr, _ []string) { order = append(order, e.ID()) })
	i := 0
	syntax.Walk(b, nil, func(e ast.Expr, _ []string) {
		ids[order[i]] = e.ID()
		i++
	})
}
