package expr

import (
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/expr/equality"
	"github.com/deltarouter/deltarouter/internal/expr/syntax"
)

// Identity is the same for programs that give the same results: equal texts of one environment, for
// the same sources.
type Identity struct {
	env           *Env
	text, sources string
}

// Identity returns what the program has in common with those that do the same.
func (p *Program) Identity() Identity {
	return Identity{p.env, p.linked.Texts.Main().Text(), p.from}
}

// Conjuncts takes a filter apart: A && B && C is false if one of them is, whatever the others are,
// errors included. It returns those that are equalities, in the order of the text, and whether that
// is not all there is to the filter. Defines are followed.
func (p *Program) Conjuncts() (equalities []equality.Equality, rest bool) {
	if p.mixed {
		return nil, true
	}
	return equality.Of(p.linked.Texts.Units)
}

// Plain returns the field that an index consists of, if it is nothing but a field of the object.
// Where [equality.Field.ReadIn] knows its value, which is a string then, that is the key.
func (p *Program) Plain() (f *equality.Field, ok bool) {
	if p.mixed {
		return nil, true
	}
	return equality.Plain(p.linked.Texts.Units)
}

// inspect notes what the tree has: loops, names of variables and the literal names that errors may
// quote.
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

// Uses reports whether the expression refers to a variable of the rules about time (now, since,
// late, repeat, suppressed or objects), or to event or events.
func (p *Program) Uses(variable string) bool {
	_, uses := p.UseOf(variable)
	return uses
}

// UseOf returns where the expression refers to such a variable for the first time: in which define,
// if it is not its own text, and at which place. False: it does not. What each source has an
// expression of its own for is looked at in the order of their names.
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

// Use is a place where an expression refers to a variable.
type Use struct {
	Source       string // whose expression it is, if each source has its own, see [BySource]
	Define       string // the define that the place is in; empty: the expression itself
	Line, Column int    // counted as in [celerr.Issue]
}

// Sources returns the sources that the expression looks things up in, sorted.
func (p *Program) Sources() []string { return p.sources }

// Indexes returns the indexes that the expression looks things up in, as source.index.
func (p *Program) Indexes() []string { return p.linked.Indexes }

// Defines returns the names of the defines that the expression uses, those that others of them use
// included.
func (p *Program) Defines() (names []string) {
	for _, u := range p.linked.Texts.Units {
		if u.Define != "" {
			names = append(names, u.Define)
		}
	}
	return names
}

// IsConstant reports whether the expression refers to no variable.
func (p *Program) IsConstant() bool { return !p.refers }

// IsCallOf reports whether the expression is one call of a function and nothing else.
func (p *Program) IsCallOf(function string) bool {
	e := p.linked.Texts.Main().AST.NativeRep().Expr()
	return e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction() && e.AsCall().FunctionName() == function
}
