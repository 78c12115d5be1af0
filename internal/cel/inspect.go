package cel

import (
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Identity is equal for programs with equal results: equal texts of one environment, for the same
// sources.
type Identity struct {
	env           *Env
	text, sources string
}

// Identity returns a value that is equal for programs with equal results.
func (p *Program) Identity() Identity {
	return Identity{p.env, p.linked.Texts.Main().Text(), p.from}
}

// Conjuncts splits a filter: A && B && C is false if one of them is, whatever the others are,
// errors included. It returns the conjuncts that are equalities, in the order of the text; rest
// reports whether the filter has others. Defines are followed.
func (p *Program) Conjuncts() (equalities []equality.Equality, rest bool) {
	if p.mixed {
		return nil, true
	}
	return equality.Of(p.linked.Texts.Units)
}

// Plain returns the field of an index whose expression is a single field of the object. If
// [equality.Field.ReadIn] finds its value, which is then a string, that value is the key.
func (p *Program) Plain() (f *equality.Field, ok bool) {
	if p.mixed {
		return nil, true
	}
	return equality.Plain(p.linked.Texts.Units)
}

// inspect records the loops of the tree, the names of its variables, and the literal names that
// errors may quote.
func (p *Program) inspect(tree *cel.Ast) {
	syntax.Walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			p.loops = true
		case ast.IdentKind:
			p.refers = true
		case ast.SelectKind:
			p.names = append(p.names, e.AsSelect().FieldName())
		case ast.LiteralKind:
			if s, ok := e.AsLiteral().(types.String); ok {
				p.names = append(p.names, string(s))
			}
		default:
		}
	})
}

// Uses reports whether the expression uses a variable of the rules about time (now, since, late,
// repeat, suppressed or objects), or event or events.
func (p *Program) Uses(variable string) bool {
	_, uses := p.UseOf(variable)
	return uses
}

// UseOf returns the first place at which the expression uses a variable, and the define if the
// place is in one. False: it does not use it. Programs of several sources are searched in the order
// of the sources' names.
func (p *Program) UseOf(variable string) (at Use, ok bool) {
	programs := []*Program{p}
	for _, source := range slices.Sorted(maps.Keys(p.others)) {
		programs = append(programs, p.others[source])
	}
	for _, program := range programs {
		for _, u := range program.linked.Uses {
			if u.Variable == variable {
				return Use{Source: program.own, Define: u.Define, Line: u.Line, Column: u.Column}, true
			}
		}
	}
	return Use{}, false
}

// Use is a place where an expression uses a variable.
type Use struct {
	Source       string // the source of the expression, if each source has its own, see [BySource]
	Define       string // the define that the place is in; empty: the expression itself
	Line, Column int    // counted as in [celerr.Issue]
}

// Sources returns the sources of the expression's look-ups, sorted.
func (p *Program) Sources() []string { return p.sources }

// Indexes returns the indexes of the expression's look-ups, as source.index.
func (p *Program) Indexes() []string { return p.linked.Indexes }

// Defines returns the names of the defines that the expression uses, directly or through other
// defines.
func (p *Program) Defines() (names []string) {
	for _, u := range p.linked.Texts.Units {
		if u.Define != "" {
			names = append(names, u.Define)
		}
	}
	return names
}

// IsConstant reports whether the expression uses no variable.
func (p *Program) IsConstant() bool { return !p.refers }

// IsCallOf reports whether the expression consists of one call of a function.
func (p *Program) IsCallOf(function string) bool {
	e := p.linked.Texts.Main().AST.NativeRep().Expr()
	return e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction() && e.AsCall().FunctionName() == function
}
