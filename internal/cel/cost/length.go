package cost

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// assumed has the assumed lengths of lists and texts whose length neither the schema nor the
// expression limits.
type assumed struct {
	list   uint64 // elements of a list or map
	inner  uint64 // elements of a list or map in the elements of another
	text   uint64 // characters
	found  uint64 // results of lookup
	named  uint64 // results of lookup in the index name: one of each namespace
	source uint64 // results of list
	part   uint64 // the maximum of the schema is divided by this
}

// largeObjects are not the largest possible ones: they have as many endpoints as an EndpointSlice.
// An expression that costs too much for them causes a warning.
func largeObjects() assumed {
	return assumed{list: 1_000, inner: 10, text: 100, found: 1_000, named: 100, source: 3_000, part: 1}
}

// plainObjects are like most objects. An expression that costs too much even for them is a mistake.
func plainObjects() assumed {
	return assumed{list: 100, inner: 2, text: 20, found: 10, named: 2, source: 300, part: 10}
}

// reach is the known origin of the value of an expression, beside its type.
type reach struct {
	// fields of an object, as cel-go writes them, beginning with a variable; nil: computed
	path []string
	elem []string // that of its elements, if it is not path/@items
	// reads is the path of a field that this expression itself reads; a key of a map is a part of
	// it.
	reads []string
	n     uint64 // the length; 0: according to path and type
}

func (r reach) elements(step string) []string {
	if r.elem != nil {
		return r.elem
	}
	return append(slices.Clone(r.path), step)
}

// measure estimates the lengths of the values of e and of all its subexpressions. cel-go follows
// fields and loops; measure also follows values through optionals and through functions that return
// a part of a list.
func (c *estimator) measure(e ast.Expr, vars map[string]reach) (r reach) {
	switch e.Kind() {
	case ast.IdentKind:
		var bound bool
		if r, bound = vars[e.AsIdent()]; !bound {
			r.path = []string{e.AsIdent()}
		}
		r.reads = nil
	case ast.SelectKind:
		r.path = append(slices.Clone(c.measure(e.AsSelect().Operand(), vars).path), e.AsSelect().FieldName())
		r.reads = r.path
	case ast.CallKind:
		for _, part := range syntax.PartsOf(e) {
			c.measure(part, vars)
		}
		r = c.called(e)
	case ast.ComprehensionKind:
		r = c.looped(e.AsComprehension(), vars)
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.LiteralKind, ast.UnspecifiedExprKind:
		for _, part := range syntax.PartsOf(e) {
			c.measure(part, vars)
		}
		return reach{} // cel-go counts these
	}
	c.reached[e.ID()] = r
	return r
}

// called returns the reach of the result of a call.
func (c *estimator) called(e ast.Expr) (r reach) {
	call := e.AsCall()
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	switch name := call.FunctionName(); name {
	case operators.OptSelect:
		field, _ := syntax.Literal(args[1])
		r.path = append(slices.Clone(c.reached[args[0].ID()].path), field)
		r.reads = r.path
	case operators.Index, operators.OptIndex:
		r.path = c.reached[args[0].ID()].elements("@items")
		r.reads = r.path
		if key, ok := syntax.Literal(args[1]); ok && len(r.path) > 0 {
			r.reads = append(slices.Clone(r.path[:len(r.path)-1]), key)
		}
	case "slice":
		r = c.reached[args[0].ID()]
		r.reads = nil
		r.n = c.length(args[0])
		from, ok1 := syntax.WholeNumber(args[1])
		to, ok2 := syntax.WholeNumber(args[2])
		if ok1 && ok2 {
			r.n = min(r.n, uint64(max(0, to-from)))
		}
	case "flatten":
		r.n = c.length(args[0]) * c.inner
	default:
		switch f := table[name]; {
		case f.asFirst:
			r = c.reached[args[0].ID()]
			r.reads = nil
			r.n = c.length(args[0])
		case f.asLonger:
			r = c.reached[args[0].ID()]
			r.reads = nil
			r.n = max(1, c.length(args[0]), c.length(args[1]))
		default:
			r.n = c.resultsOf(name, args)
		}
	}
	return r
}

// looped returns the reach of the result of a loop, or of a bind.
func (c *estimator) looped(l ast.ComprehensionExpr, vars map[string]reach) reach {
	from, init := c.measure(l.IterRange(), vars), c.measure(l.AccuInit(), vars)
	inside := make(map[string]reach, len(vars)+3)
	maps.Copy(inside, vars)
	inside[l.AccuVar()] = init
	if l.IterRange().Kind() == ast.ListKind && l.IterRange().AsList().Size() == 0 { // cel.bind
		c.measure(l.LoopCondition(), inside)
		c.measure(l.LoopStep(), inside)
		return c.measure(l.Result(), inside)
	}
	rounds := c.length(l.IterRange())
	isMap := c.kind(l.IterRange()) == types.MapKind
	switch {
	case l.HasIterVar2():
		inside[l.IterVar()], inside[l.IterVar2()] = reach{path: from.elements("@keys")}, reach{path: from.elements("@values")}
	case isMap:
		inside[l.IterVar()] = reach{path: from.elements("@keys")}
	default:
		inside[l.IterVar()] = reach{path: from.elements("@items")}
	}
	var out reach
	if kind := l.AccuInit().Kind(); kind == ast.ListKind || kind == ast.MapKind {
		out.n = max(1, rounds)
		inside[l.AccuVar()] = out
	}
	c.measure(l.LoopCondition(), inside)
	c.measure(l.LoopStep(), inside)
	if elem := syntax.Added(l.LoopStep()); elem != nil {
		out.elem = c.reached[elem.ID()].path
	}
	c.measure(l.Result(), inside)
	return out
}

// resultsOf is the assumed number of objects that a call of our functions finds; 0: its result is
// no list.
func (c *estimator) resultsOf(function string, args []ast.Expr) uint64 {
	switch function {
	case syntax.Prefix + syntax.FuncLookup, syntax.Prefix + syntax.FuncLookupMax:
		return c.found(args)
	case syntax.Prefix + syntax.FuncList:
		return c.source
	case syntax.Prefix + syntax.FuncManagers:
		return c.inner
	case syntax.Prefix + syntax.FuncDiff:
		return MaxDifferences
	}
	return 0
}

// found returns the number of objects that a lookup finds: its last argument, or the assumed
// number. The call is linked: its first arguments are the evaluation, a type if known, the source
// and the index.
func (c *estimator) found(args []ast.Expr) uint64 {
	names := 1
	if len(args) > 1 && args[1].Kind() == ast.IdentKind && strings.HasPrefix(args[1].AsIdent(), syntax.Prefix) {
		names++
	}
	if len(args) == names+4 {
		if most, ok := syntax.WholeNumber(args[names+3]); ok {
			return uint64(max(1, most))
		}
	}
	if len(args) > names+1 {
		if index, _ := syntax.Literal(args[names+1]); index == "name" {
			return c.named
		}
	}
	return c.assumed.found
}

// kind returns the kind of an expression's type, or of the value of an optional.
func (c *estimator) kind(e ast.Expr) types.Kind {
	return syntax.UnwrapOptional(c.tree.GetType(e.ID())).Kind()
}

// length returns the length of the value of an expression.
func (c *estimator) length(e ast.Expr) uint64 {
	switch e.Kind() {
	case ast.ListKind:
		return uint64(e.AsList().Size()) //nolint:gosec // not negative
	case ast.MapKind:
		return uint64(e.AsMap().Size()) //nolint:gosec // not negative
	case ast.LiteralKind:
		s, _ := syntax.Literal(e)
		return uint64(len(s))
	default:
		r := c.reached[e.ID()]
		if r.n > 0 {
			return r.n
		}
		return c.assume(c.kind(e), r.path)
	}
}

// assume returns the assumed length of a value with this type and path.
func (c *estimator) assume(kind types.Kind, path []string) (n uint64) {
	switch kind { // the others are an optional, a quantity
	case types.ListKind, types.MapKind, types.DynKind, types.StructKind:
		n = c.list
		// like @items
		if slices.ContainsFunc(path, func(step string) bool { return strings.HasPrefix(step, "@") }) {
			n = c.inner
		}
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.DurationKind, types.TimestampKind, types.NullTypeKind, types.TypeKind:
		n = 1
	default:
		n = c.text
	}
	if most := c.most(path); most > 0 {
		n = max(1, most/c.part)
	}
	return n
}

// most returns the longest length that the schema allows for the value at a path; 0: the schema has
// no limit.
func (c *estimator) most(path []string) uint64 {
	if len(path) == 0 || path[0] != syntax.VarObject && path[0] != syntax.VarOldObject {
		return 0
	}
	t := c.root
	for _, step := range path[1:] {
		switch {
		case t == nil || step == "@keys" || step == "@indices":
			return 0
		case t.Kind == schema.Object:
			t = fieldOf(t, step)
		default:
			t = t.Elem
		}
	}
	if t == nil {
		return 0
	}
	return uint64(max(0, t.Max))
}

// fieldOf finds a field by one of its CEL names.
func fieldOf(t *schema.Type, called string) *schema.Type {
	if f, ok := t.Fields[called]; ok {
		return f.Type
	}
	for name, f := range t.Fields {
		if slices.Contains(jsonval.CELNames(name), called) {
			return f.Type
		}
	}
	return nil
}
