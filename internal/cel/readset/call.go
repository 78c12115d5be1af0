package readset

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/kept"
)

// The functions of optional values.
const (
	optionalOf  = "optional.of"
	hasValue    = "hasValue"
	valueOf     = "value"
	or          = "or"
	orValue     = "orValue"
	dyn         = "dyn"
	size        = "size"
	optionalsIn = "optional_type"
)

// call returns the origins of the result of a function.
func (r *reader) call(e ast.Expr, vars map[string]value) value {
	args := syntax.PartsOf(e)
	switch name := e.AsCall().FunctionName(); name {
	case operators.Index, operators.OptIndex:
		return r.index(args, vars)
	case operators.OptSelect:
		key, _ := syntax.Literal(args[1])
		return r.member(r.value(args[0], vars), key)
	case operators.Conditional:
		r.use(r.value(args[0], vars))
		return r.value(args[1], vars).or(r.value(args[2], vars))
	case dyn, optionalOf:
		return r.value(args[0], vars)
	case valueOf, or, orValue:
		if r.isOptional(args[0]) {
			return r.oneOf(args, vars)
		}
	case operators.Add:
		if r.isList(e) {
			return r.oneOf(args, vars)
		}
	default:
		if r.touches(name, args) {
			for _, arg := range args {
				r.touch(r.value(arg, vars))
			}
			return nil
		}
		if ours, ok := strings.CutPrefix(name, syntax.Prefix); ok {
			return r.ours(ours, args, vars)
		}
	}
	r.useAll(args, vars)
	return nil
}

// touches reports whether a function reads only the existence, or the number of elements, of its
// arguments.
func (r *reader) touches(name string, args []ast.Expr) bool {
	switch name {
	case operators.Equals, operators.NotEquals:
		return r.isNull(args[0]) || r.isNull(args[1])
	case size:
		return len(args) == 1 && r.isList(args[0])
	case hasValue:
		return r.isOptional(args[0])
	}
	return false
}

// oneOf returns the origins of a value that is one of some values, or a list with the elements of
// some lists.
func (r *reader) oneOf(parts []ast.Expr, vars map[string]value) (all value) {
	for _, part := range parts {
		all = all.or(r.value(part, vars))
	}
	return all
}

func (r *reader) isNull(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.NullValue
}

func (r *reader) isOptional(e ast.Expr) bool {
	return r.kind(e) == types.OpaqueKind && r.Tree.GetType(e.ID()).TypeName() == optionalsIn
}

// index is a member of a map, or an element of a list.
func (r *reader) index(args []ast.Expr, vars map[string]value) value {
	v := r.value(args[0], vars)
	if r.isList(args[0]) {
		r.use(r.value(args[1], vars))
		r.touch(v)
		return v
	}
	if key, ok := syntax.Literal(args[1]); ok {
		return r.member(v, key)
	}
	r.use(r.value(args[1], vars))
	r.use(v)
	return nil
}

// ours is a call of one of our functions, whose first argument is [syntax.VarInput].
func (r *reader) ours(name string, args []ast.Expr, vars map[string]value) value {
	switch name {
	case syntax.FuncChanged:
		r.changed(args[1])
		return nil
	case syntax.FuncManagers:
		r.use(r.member(r.member(r.value(args[1], vars), "metadata"), "managedFields"))
		return nil
	case syntax.FuncController:
		return r.controller(r.value(args[1], vars))
	case syntax.FuncLookup, syntax.FuncLookupMax, syntax.FuncGet, syntax.FuncList:
		r.useAll(args[1:], vars)
		for _, arg := range args {
			if source, ok := syntax.Literal(arg); ok { // the first one
				return value{{source: source}}
			}
		}
	}
	r.useAll(args, vars)
	return nil
}

// changed is changed(): at is the number of the path.
func (r *reader) changed(at ast.Expr) {
	n, ok := at.AsLiteral().(types.Int)
	if !ok || int(n) >= len(r.Changed) {
		r.use(value{{source: Own}})
		return
	}
	r.use(value{{source: Own, path: keysOf(r.Changed[n])}})
}

// keysOf returns the keys of a path up to the first step that may be an element of a list.
func keysOf(path fieldpath.Path) (keys []string) {
	for _, step := range path {
		if step.All || step.Index >= 0 {
			break
		}
		keys = append(keys, step.Key)
	}
	return keys
}

// controller is controller(), which follows the references to owners.
func (r *reader) controller(of value) (found value) {
	references := func(v value) value { return r.member(r.member(v, "metadata"), "ownerReferences") }
	r.use(references(of))
	for _, source := range slices.Sorted(slices.Values(r.Owners)) {
		r.use(references(value{{source: source}}))
		found = append(found, part{source: source, owner: true})
	}
	return found
}

// Indexed returns the fields that an index reads beside those of its expressions.
func Indexed(index string) kept.Set {
	if index == "owner" {
		return kept.Of([]string{"metadata", "ownerReferences"})
	}
	return kept.Set{}
}
