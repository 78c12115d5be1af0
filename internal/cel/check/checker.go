// Package check compiles the defines of a configuration and checks expressions, for each source
// with a known type: their types ([Checker]); the rules of the place where they are used, as which
// variables, functions, sources, indexes and paths exist ([Resolve], which makes one tree of an
// expression and the defines that it uses); and effects that their author may not intend
// ([Warnings]).
package check

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
)

// Checker checks the types of the texts of one configuration. It is safe for concurrent use.
type Checker struct {
	// by source; "": for sources without a type, and for several sources
	scopes map[string]*Scope
	Types  *typeset.Set
	Infos  map[string]*jsonval.TypeInfo // the known types of the objects, by source
	texts  map[string]string            // of the defines
	typed  []cel.EnvOption              // a variable of each type of objects, see Scope.typeCalls
	// One expression is checked at a time, so that the missed fields belong to it.
	checking sync.Mutex
}

// New makes a scope for each source with a type, and compiles the defines in it. A mistake of a
// define in the scope without types is a mistake everywhere: the error has a *[celerr.CompileError]
// for each. The effort is spent on the defines, once for each scope.
func New(base *cel.Env, known map[string]*schema.Type, defines map[string]string, effort *Effort) (*Checker, error) {
	c := &Checker{
		scopes: make(map[string]*Scope), Types: typeset.New(base.CELTypeProvider()), Infos: make(map[string]*jsonval.TypeInfo), texts: defines,
	}
	celTypes := make(map[string]*cel.Type, len(known))
	for _, source := range slices.Sorted(maps.Keys(known)) {
		if t := known[source]; t != nil && t.Kind == schema.Object {
			celTypes[source] = c.Types.Add(t)
			c.Infos[source] = c.Types.Infos.Of(t)
		}
	}
	c.declareTypes()
	untyped, err := c.newScope(base, "", cel.DynType, effort)
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(untyped.failed)) {
		wrong = append(wrong, untyped.failed[name])
	}
	if len(wrong) > 0 {
		return nil, celerr.Join(wrong)
	}
	c.scopes[""] = untyped
	for _, source := range slices.Sorted(maps.Keys(celTypes)) {
		if c.scopes[source], err = c.newScope(base, source, celTypes[source], effort); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// declareTypes makes the variables of the types once for all scopes: there are as many scopes as
// sources.
func (c *Checker) declareTypes() {
	declared := make(map[string]bool)
	for _, source := range slices.Sorted(maps.Keys(c.Infos)) {
		if t := c.Types.CELType(c.Infos[source].Schema); !declared[t.TypeName()] {
			declared[t.TypeName()] = true
			c.typed = append(c.typed, cel.Variable(syntax.Prefix+t.TypeName(), t))
		}
	}
}

// NewForEvents returns a checker of expressions about events alone. Its only scope has the
// declarations of base.
func NewForEvents(base *cel.Env) *Checker {
	c := &Checker{Types: typeset.New(base.CELTypeProvider()), Infos: make(map[string]*jsonval.TypeInfo)}
	c.scopes = map[string]*Scope{"": {checker: c, CEL: base, aboutEvents: true}}
	return c
}

// Scope returns the scope of the expressions of a source; "": of several sources.
func (c *Checker) Scope(source string) *Scope {
	if s, ok := c.scopes[source]; ok {
		return s
	}
	return c.scopes[""]
}

// Knows reports whether the objects of a source have a type.
func (c *Checker) Knows(source string) bool { return c.scopes[source] != nil }

// Define returns the text of a define.
func (c *Checker) Define(name string) (text string, ok bool) {
	text, ok = c.texts[name]
	return text, ok
}

// typeCalls adds a variable of the type of the found objects to calls of lookup, get and list, as
// their first argument. The variable has no value.
func (s *Scope) typeCalls(parsed *cel.Ast) {
	factory := ast.NewExprFactory()
	next := syntax.MaxID(parsed)
	syntax.Walk(parsed.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) {
		if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() {
			return
		}
		function, args := e.AsCall().FunctionName(), e.AsCall().Args()
		if function == syntax.FuncLookup && len(args) == syntax.Arity(syntax.FuncLookupMax) && !syntax.HasType(function, args) {
			function = syntax.FuncLookupMax
			e.SetKindCase(factory.NewCall(e.ID(), function, args...))
		}
		if len(args) != syntax.Arity(function) {
			return
		}
		source, ok := syntax.Literal(args[0])
		if function == syntax.FuncLookup || function == syntax.FuncLookupMax {
			of, _, named := strings.Cut(source, ".")
			if source = s.source; named {
				source = of
			}
		}
		found := s.checker.Infos[source]
		if !ok || found == nil {
			return
		}
		next++
		t := factory.NewIdent(next, syntax.Prefix+s.checker.Types.CELType(found.Schema).TypeName())
		e.SetKindCase(factory.NewCall(e.ID(), function, append([]ast.Expr{t}, args...)...))
	})
}
