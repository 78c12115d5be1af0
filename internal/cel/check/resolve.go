package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Place is where an expression is used.
type Place struct {
	Usage  Usage
	Source string   // the source of an index name without source; empty: there are several
	Of     []string // the sources of the deltas
}

// Linked is an expression and the defines that it uses as one tree.
type Linked struct {
	Tree    *cel.Ast         // the tree to evaluate
	Texts   syntax.Texts     // the texts of the tree
	Paths   []fieldpath.Path // of the calls of changed()
	Sources []string         // of look-ups, sorted
	Indexes []string         // of look-ups, as source.index
	Uses    []use            // of variables that not every place has
	Reads   []Read           // by changed()
}

// Names has the names that the expressions of a configuration may use.
type Names struct {
	Indexes       map[string][]string        // of each source, built-in ones included
	Owners        []string                   // the sources that controller follows, sorted
	ManagedFields map[string]bool            // the sources that keep metadata.managedFields
	Missing       func(source string) string // the message about an unknown source; nil: it names the known ones
}

// use is a place of a variable.
type use struct {
	Variable     string
	Define       string // the define with the place; empty: the expression itself
	Line, Column int    // counted as in [celerr.Issue]
}

// resolver makes the tree, and adds the arguments of our functions that depend on the place of use:
// the source of an index name without source, and the parsed path.
//
// A define is bound like cel.bind(name, text, …) around the whole expression: evaluated at most
// once, at the first use of its name, within the same cost limit.
type resolver struct {
	Place
	Linked

	scope *Scope
	names *Names
	// the defines in the order of their dependencies, and the expression proper last
	units  []syntax.Unit
	edits  []edit
	issues map[string][]celerr.Issue // by define
}

// Resolve collects the defines that main uses, and checks all of them for a place of use. The error
// is one or more *[celerr.CompileError].
func Resolve(scope *Scope, names *Names, place Place, main syntax.Unit) (*Linked, error) {
	r := resolver{Place: place, scope: scope, names: names, issues: make(map[string][]celerr.Issue)}
	r.collect(main)
	if err := r.failedDefines(); err != nil {
		return nil, err
	}
	if err := r.tooLarge(); err != nil {
		return nil, err
	}
	if problem := resultProblem(main.AST.OutputType(), place.Usage); problem != "" {
		return nil, &celerr.CompileError{Issues: []celerr.Issue{{Line: 1, Message: problem}}}
	}
	for i, u := range r.units {
		r.check(i, u)
	}
	if len(r.issues) > 0 {
		return nil, r.err()
	}
	if err := r.link(main); err != nil {
		return nil, err
	}
	slices.Sort(r.Sources)
	return &r.Linked, nil
}

// link makes one tree of all units.
func (r *resolver) link(main syntax.Unit) error {
	r.Tree = main.AST
	if len(r.units) > 1 || len(r.edits) > 0 {
		optimizer, err := cel.NewStaticOptimizer(r)
		if err != nil {
			return fmt.Errorf("link the expression with its defines: %w", err)
		}
		linked, issues := optimizer.Optimize(r.scope.CEL, main.AST)
		if issues.Err() != nil {
			return r.scope.CompileError("", "", issues)
		}
		r.Tree = linked
	}
	r.Texts = syntax.Texts{Units: r.units, Info: r.Tree.NativeRep().SourceInfo(), Linked: r.Tree != main.AST}
	return nil
}

// collect lists u behind the defines that it uses.
func (r *resolver) collect(u syntax.Unit) {
	for _, name := range u.Uses {
		if !slices.ContainsFunc(r.units, func(known syntax.Unit) bool { return known.Define == name }) {
			r.collect(r.scope.Defined(name))
		}
	}
	r.units = append(r.units, u)
}

// failedDefines returns the mistakes of the used defines.
func (r *resolver) failedDefines() error {
	var failed []error
	for _, u := range r.units {
		if wrong := r.scope.Failure(u.Define); wrong != nil {
			again := *wrong // a copy, because each place of use writes its source into it
			failed = append(failed, &again)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return celerr.Join(failed)
}

// tooLarge returns an error if the expression and its defines have too many nodes together.
func (r *resolver) tooLarge() error {
	nodes := 0
	for _, u := range r.units {
		if u.AST != nil {
			nodes += Nodes(u.AST)
		}
	}
	if nodes <= maxNodes {
		return nil
	}
	return &celerr.CompileError{Issues: []celerr.Issue{{Line: 1, Message: fmt.Sprintf(
		"it and the %d defines that it uses have %d parts together, %d at most: use fewer or shorter defines", len(r.units)-1, nodes, maxNodes)}}}
}

func (r *resolver) err() error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(r.issues)) {
		all = append(all, &celerr.CompileError{Define: name, Issues: r.issues[name]})
	}
	return celerr.Join(all)
}

// check finds uses of variables and functions that this place of use does not have, and records the
// calls of our functions.
func (r *resolver) check(n int, u syntax.Unit) {
	tree := u.AST.NativeRep()
	syntax.Walk(tree.Expr(), nil, func(e ast.Expr, local []string) {
		switch {
		case e.Kind() == ast.IdentKind && !slices.Contains(local, e.AsIdent()):
			r.variable(u, e)
		case e.Kind() == ast.StructKind && r.scope.Schema(e.AsStruct().TypeName()) != nil:
			r.problem(u, e, "an expression cannot make a %s; write a map instead", e.AsStruct().TypeName())
		case e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction():
			r.call(n, u, e)
		}
	})
}

func (r *resolver) problem(u syntax.Unit, at ast.Expr, format string, args ...any) {
	line, column := u.Start(at)
	r.issues[u.Define] = append(r.issues[u.Define], celerr.Issue{Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

// Read is a field of the object that an expression reads.
type Read struct {
	Path         []string // of keys, from the object
	Define       string   // the define with the place; empty: the expression itself
	Line, Column int      // counted as in [celerr.Issue]
}

// levelsOnly is the message for uses that an expression of [When] may not have.
const levelsOnly = "when describes a state, not a change; use filter for changes"

// variable checks that a variable exists at this place of use.
func (r *resolver) variable(u syntax.Unit, e ast.Expr) {
	switch name := e.AsIdent(); name {
	case syntax.VarOldObject, syntax.VarOp:
		switch r.Usage { //nolint:exhaustive // the others see all
		case Index:
			r.problem(u, e, "%s does not exist here: an index sees only object, source and cluster", name)
		case When:
			r.problem(u, e, "%s does not exist here: "+levelsOnly, name)
		}
	case syntax.VarNow:
		r.note(u, e)
		if r.Usage != When && r.Usage != Value {
			r.problem(u, e, "now exists in when only: other expressions must not depend on the time of their evaluation")
		}
	case syntax.VarSince, syntax.VarLate, syntax.VarRepeat, syntax.VarSuppressed, syntax.VarObjects, syntax.VarEvents:
		r.note(u, e)
		if r.Usage != Emit {
			r.problem(u, e, "%s exists in emit only", name)
		}
	case syntax.VarEvent:
		r.note(u, e)
		switch r.Usage { //nolint:exhaustive // the others may be of a downstream route
		case Index:
			r.problem(u, e, "event does not exist here: an index sees only object, source and cluster")
		case When, Query, Objects:
			r.problem(u, e, "event does not exist here: only expressions of downstream routes have it")
		}
	}
}

// note records a place of a variable.
func (r *resolver) note(u syntax.Unit, e ast.Expr) {
	line, column := u.Start(e)
	r.Uses = append(r.Uses, use{e.AsIdent(), u.Define, line, column})
}
