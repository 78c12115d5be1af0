package check

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
)

// object is a call of a function with objects as arguments.
func (r *resolver) object(n int, u syntax.Unit, e ast.Expr) {
	var args []any
	for _, arg := range e.AsCall().Args() {
		args = append(args, arg)
	}
	r.edits = append(r.edits, edit{n, e.ID(), args})
	switch e.AsCall().FunctionName() {
	case syntax.FuncManagers:
		r.managed(u, e)
	case syntax.FuncController:
		if r.Usage == Index {
			r.problem(u, e, "controller() does not exist here: an index sees only object, source and cluster")
			return
		}
		for _, source := range r.names.Owners {
			r.lookUp(source)
		}
	}
}

// lookUp records a source of look-ups.
func (r *resolver) lookUp(source string) {
	if !slices.Contains(r.Sources, source) {
		r.Sources = append(r.Sources, source)
	}
}

// event checks a call of event().
func (r *resolver) event(u syntax.Unit, e ast.Expr) {
	if r.Usage != Emit && r.Usage != Value {
		r.problem(u, e, "event() exists in emit only")
		return
	}
	data := e.AsCall().Args()[0]
	switch t := u.AST.NativeRep().GetType(data.ID()); t.Kind() {
	case types.MapKind, types.StructKind, types.DynKind, types.TypeParamKind, types.AnyKind:
	default:
		r.problem(u, data, "event() takes a map, the data of the event, and this is of type %s", cel.FormatCELType(t))
	}
}

func (r *resolver) call(n int, u syntax.Unit, e ast.Expr) {
	name, args := e.AsCall().FunctionName(), e.AsCall().Args()
	if syntax.HasType(name, args) {
		args = args[1:] // the type
	} else if n := syntax.Arity(name); n > 0 && len(args) > n {
		r.problem(u, e, "%s() takes %d arguments, not %d", syntax.NameOf(name), n, len(args))
		return
	}
	switch name {
	case syntax.FuncChanged, syntax.FuncLookup, syntax.FuncLookupMax, syntax.FuncCount, syntax.FuncGet, syntax.FuncList:
	case syntax.FuncDiff, syntax.FuncManagers, syntax.FuncController:
		r.object(n, u, e)
		return
	case syntax.FuncEvent:
		r.event(u, e)
		return
	default:
		return
	}
	if r.Usage == When && name == syntax.FuncChanged {
		r.problem(u, e, "changed() does not exist here: "+levelsOnly)
		return
	}
	if r.Usage == Index {
		r.problem(u, e, "%s() does not exist here: an index sees only object, source and cluster", syntax.NameOf(name))
		return
	}
	first, ok := syntax.Literal(args[0])
	if !ok {
		r.problem(u, args[0], "the first argument of %s() must be a literal string: it is checked before anything runs", syntax.NameOf(name))
		return
	}
	switch name {
	case syntax.FuncChanged:
		if p, ok := r.path(u, args[0], first); ok {
			r.edits = append(r.edits, edit{n, e.ID(), []any{len(r.Paths)}})
			r.Paths = append(r.Paths, p)
			r.noteChanged(u, args[0], p)
		}
	case syntax.FuncLookup, syntax.FuncLookupMax, syntax.FuncCount:
		if source, index, ok := r.index(u, args[0], first); ok {
			rest := []any{source, index}
			for _, arg := range args[1:] {
				rest = append(rest, arg)
			}
			r.Indexes = append(r.Indexes, source+"."+index)
			r.edits = append(r.edits, edit{n, e.ID(), rest})
		}
	case syntax.FuncGet, syntax.FuncList:
		if r.knownSource(u, args[0], first) {
			rest := []any{first}
			for _, arg := range args[1:] {
				rest = append(rest, arg)
			}
			r.edits = append(r.edits, edit{n, e.ID(), rest})
		}
	}
}

// index splits "source.index" or "index" and checks that both exist.
func (r *resolver) index(u syntax.Unit, at ast.Expr, text string) (source, index string, ok bool) {
	source, index, ok = strings.Cut(text, ".")
	if !ok {
		source, index = r.Source, text
	}
	if source == "" {
		r.problem(u, at, "there are several sources: write the source before the index, as in %q", slices.Sorted(maps.Keys(r.names.Indexes))[0]+"."+index)
		return "", "", false
	}
	if !r.knownSource(u, at, source) {
		return "", "", false
	}
	if indexes := r.names.Indexes[source]; !slices.Contains(indexes, index) {
		near := typeset.Suggest(index, indexes)
		if near == "" {
			near = "; it has " + strings.Join(indexes, ", ")
		}
		r.problem(u, at, "source %q has no index %q%s", source, index, near)
		return "", "", false
	}
	return source, index, true
}

func (r *resolver) knownSource(u syntax.Unit, at ast.Expr, source string) bool {
	if _, ok := r.names.Indexes[source]; !ok {
		if r.names.Missing != nil {
			r.problem(u, at, "%s", r.names.Missing(source))
			return false
		}
		known := slices.Sorted(maps.Keys(r.names.Indexes))
		near := typeset.Suggest(source, known)
		if near == "" {
			near = "; known are " + strings.Join(known, ", ")
		}
		r.problem(u, at, "there is no source %q%s", source, near)
		return false
	}
	r.lookUp(source)
	return true
}

// managed refuses managers() for sources without managedFields.
func (r *resolver) managed(u syntax.Unit, e ast.Expr) {
	arg := e.AsCall().Args()[0]
	var sources []string
	switch {
	case arg.Kind() == ast.IdentKind && (arg.AsIdent() == syntax.VarObject || arg.AsIdent() == syntax.VarOldObject):
		sources = r.Of
	case arg.Kind() == ast.CallKind && arg.AsCall().FunctionName() == syntax.FuncGet:
		args := arg.AsCall().Args()
		if source, ok := syntax.Literal(args[len(args)-syntax.Arity(syntax.FuncGet)]); ok {
			sources = []string{source}
		}
	}
	for _, source := range sources {
		if _, known := r.names.Indexes[source]; known && !r.names.ManagedFields[source] {
			r.problem(u, e, "source %q does not keep managedFields; give it managedFields: true", source)
			return
		}
	}
}

// path checks the argument of changed: its form, and whether objects of this place have it.
func (r *resolver) path(u syntax.Unit, arg ast.Expr, text string) (p fieldpath.Path, ok bool) {
	p, err := fieldpath.Parse(text)
	if err == nil {
		var of *schema.Type
		if s := r.scope.Info(); s != nil {
			of = s.Schema
		}
		failed := p.Check(text, of)
		if failed == nil {
			return p, true
		}
		err = failed
	}
	at := 0
	if failed, isPath := err.(*fieldpath.Error); isPath { //nolint:errorlint // it is made here
		at = failed.At
	}
	r.inside(u, arg, text, at, "path: "+err.Error())
	return nil, false
}

// inside reports a problem at a byte of a literal text. If the text has escapes, the place is that
// of the literal.
func (r *resolver) inside(u syntax.Unit, literal ast.Expr, text string, at int, message string) {
	issue := celerr.Issue{Message: message}
	issue.Line, issue.Column = u.Start(literal)
	lines := strings.Split(u.Text(), "\n")
	if n := issue.Line - 1; n < len(lines) {
		if runes := []rune(lines[n]); issue.Column < len(runes) {
			opening := string(runes[issue.Column:])
			if i := strings.Index(opening, text); i > 0 && i <= 4 && strings.Trim(opening[:i], `rR"'`) == "" {
				issue.Column += i + len([]rune(text[:at]))
			}
		}
	}
	r.issues[u.Define] = append(r.issues[u.Define], issue)
}

// noteChanged records the path that changed() reads.
func (r *resolver) noteChanged(u syntax.Unit, arg ast.Expr, p fieldpath.Path) {
	read := Read{Define: u.Define}
	read.Line, read.Column = u.Start(arg)
	for _, s := range p {
		if !s.All && (s.Index < 0 || s.Key != "" && !isDigits(s.Key)) {
			read.Path = append(read.Path, s.Key)
		}
	}
	r.Reads = append(r.Reads, read)
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
