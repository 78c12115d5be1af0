package check

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Outline is the literal part of a value that an expression makes.
type Outline struct {
	At      OutlineAt
	Text    *string // the value is this text
	Map     bool    // the value is a map, with these members
	Members []outlineMember
	All     bool // the map has no other members
}

// outlineMember is a member of a map with a literal key.
type outlineMember struct {
	Key   string
	At    OutlineAt // of the key
	Value Outline
}

// OutlineAt is a place in the text of an expression or a define.
type OutlineAt struct {
	Define       string // empty: the expression itself
	Line, Column int    // counted as in [celerr.Issue]
}

// outlineBudget is the number of expressions that are visited for the events of a program, and
// again for their outlines: defines that use others several times multiply.
const outlineBudget = 10_000

// Outlines returns the data of each event that an emit may make, as far as it is a literal map in
// the text of the expression, which is the last of the units, or of a define. all: it makes no
// other events.
func Outlines(units []syntax.Unit) (found []Outline, all bool) {
	o := outliner{units: units, left: outlineBudget}
	main := units[len(units)-1]
	makers := o.events(literalAt{main, main.AST.NativeRep().Expr(), nil}, nil)
	o.left = outlineBudget
	for _, e := range makers {
		if outline := o.outline(e); outline.Map {
			found = append(found, outline)
		} else {
			o.others = true
		}
	}
	return found, !o.others
}

// outliner makes outlines.
type outliner struct {
	units []syntax.Unit
	left  int // of outlineBudget

	others bool // there may be events that are not found
}

// literalAt is a tree, its unit, and the names that macros have bound around it.
type literalAt struct {
	syntax.Unit
	ast.Expr

	local []string
}

func (l literalAt) with(e ast.Expr, names ...string) literalAt {
	if len(names) > 0 {
		l.local = append(slices.Clip(l.local), names...)
	}
	l.Expr = e
	return l
}

// define returns the tree of the define that an identifier refers to.
func (o *outliner) define(at literalAt) (literalAt, bool) {
	if slices.Contains(at.local, at.AsIdent()) {
		return literalAt{}, false
	}
	for _, u := range o.units {
		if u.Define != "" && u.Define == at.AsIdent() {
			return literalAt{u, u.AST.NativeRep().Expr(), nil}, true
		}
	}
	return literalAt{}, false
}

// events appends the expressions that make one event each.
func (o *outliner) events(at literalAt, found []literalAt) []literalAt {
	if o.left--; o.left < 0 {
		o.others = true
		return found
	}
	switch at.Kind() {
	case ast.MapKind:
		return append(found, at)
	case ast.ListKind:
		for _, item := range at.AsList().Elements() {
			found = o.events(at.with(item), found)
		}
		return found
	case ast.ComprehensionKind:
		l := at.AsComprehension()
		if l.IterRange().Kind() == ast.ListKind && l.IterRange().AsList().Size() == 0 { // cel.bind
			return o.events(at.with(l.Result(), l.AccuVar()), found)
		}
		if elem := syntax.Added(l.LoopStep()); elem != nil {
			return o.events(at.with(elem, l.AccuVar(), l.IterVar(), l.IterVar2()), found)
		}
	case ast.CallKind:
		return o.eventsOfCall(at, found)
	case ast.IdentKind:
		if used, ok := o.define(at); ok {
			return o.events(used, found)
		}
	case ast.LiteralKind:
		if at.AsLiteral() == types.NullValue {
			return found
		}
	case ast.SelectKind, ast.StructKind, ast.UnspecifiedExprKind:
	}
	o.others = true
	return found
}

func (o *outliner) eventsOfCall(at literalAt, found []literalAt) []literalAt {
	call := at.AsCall()
	switch call.FunctionName() {
	case syntax.FuncEvent, "optional.of", "dyn":
		return o.events(at.with(call.Args()[0]), found)
	case "withType", "withSubject":
		return o.events(at.with(call.Target()), found)
	case operators.Conditional:
		return o.events(at.with(call.Args()[2]), o.events(at.with(call.Args()[1]), found))
	case operators.Add:
		return o.events(at.with(call.Args()[1]), o.events(at.with(call.Args()[0]), found))
	case "optional.none":
		return found
	}
	o.others = true
	return found
}

func (l literalAt) place(e ast.Expr) OutlineAt {
	line, column := l.Start(e)
	return OutlineAt{l.Unit.Define, line, column}
}

func (o *outliner) outline(at literalAt) Outline {
	out := Outline{At: at.place(at.Expr)}
	if o.left--; o.left < 0 {
		return out
	}
	switch at.Kind() {
	case ast.LiteralKind:
		if text, ok := syntax.Literal(at.Expr); ok {
			out.Text = &text
		}
	case ast.IdentKind:
		if used, ok := o.define(at); ok {
			return o.outline(used)
		}
	case ast.CallKind:
		if at.AsCall().FunctionName() == "dyn" {
			return o.outline(at.with(at.AsCall().Args()[0]))
		}
	case ast.MapKind:
		out.Map, out.All = true, true
		for _, entry := range at.AsMap().Entries() {
			member := entry.AsMapEntry()
			key, ok := syntax.Literal(member.Key())
			if !ok {
				out.All = false
				continue
			}
			out.Members = append(out.Members, outlineMember{key, at.place(member.Key()), o.outline(at.with(member.Value()))})
		}
	}
	return out
}
