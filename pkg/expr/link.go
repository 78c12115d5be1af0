package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// linker makes one tree of an expression and the defines that it uses, and gives our functions what they need from the place of
// use: which source a bare index name belongs to, what the parsed path is.
//
// A define is bound like cel.bind(name, text, …) around the whole: evaluated at most once, when its name is first needed, at the
// expense of the same cost limit.
type linker struct {
	scope  *scope
	env    *Env
	usage  Usage
	source string   // the only one; empty: there are several
	of     []string // all

	units   []unit // the defines, those first that others use, and the expression proper last
	edits   []edit
	issues  map[string][]Issue // by define
	paths   []path
	sources []string
	indexes []string // as source.index
	uses    []use    // of variables that not every place has
}

// use is where a variable stands.
type use struct {
	variable, define string
	line, column     int
}

// edit replaces the arguments of one call. ids are those of the unit's own tree.
type edit struct {
	unit int
	id   int64
	args []any // string or int: becomes a literal; ast.Expr: stays
}

// offsetStep keeps the source offsets of the linked units apart: those of unit n start at n*offsetStep. cel-go refuses expressions
// of more than 100,000 code points.
const offsetStep = 1 << 20

// link checks what was collected for this place of use, and returns the tree to run.
func (l *linker) link(main unit) (*cel.Ast, error) {
	l.issues = make(map[string][]Issue)
	for i, u := range l.units {
		l.check(i, u)
	}
	if len(l.issues) > 0 {
		return nil, l.err()
	}
	if len(l.units) == 1 && len(l.edits) == 0 {
		return main.ast, nil
	}
	optimizer, err := cel.NewStaticOptimizer(l)
	if err != nil {
		return nil, fmt.Errorf("link the expression with its defines: %w", err)
	}
	linked, issues := optimizer.Optimize(l.scope.cel, main.ast)
	if issues.Err() != nil {
		return nil, l.scope.compileError("", "", issues)
	}
	return linked, nil
}

// collect lists u behind the defines that it uses.
func (l *linker) collect(u unit) {
	for _, name := range u.uses {
		if !slices.ContainsFunc(l.units, func(known unit) bool { return known.define == name }) {
			l.collect(l.scope.defines[name].unit)
		}
	}
	l.units = append(l.units, u)
}

// failedDefines returns what is wrong with the defines that are used.
func (l *linker) failedDefines() error {
	var failed []error
	for _, u := range l.units {
		if wrong := l.scope.failed[u.define]; wrong != nil {
			again := *wrong // each place of use writes its source into it
			failed = append(failed, &again)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return joinErrors(failed)
}

func (l *linker) err() error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(l.issues)) {
		all = append(all, &CompileError{Define: name, Issues: l.issues[name]})
	}
	return joinErrors(all)
}

// check looks for what this place of use does not have, and notes the calls of our functions.
func (l *linker) check(n int, u unit) {
	tree := u.ast.NativeRep()
	walk(tree.Expr(), nil, func(e ast.Expr, local []string) {
		switch {
		case e.Kind() == ast.IdentKind && !slices.Contains(local, e.AsIdent()):
			l.variable(u, e)
		case e.Kind() == ast.StructKind && l.env.types.objects[e.AsStruct().TypeName()] != nil:
			l.problem(u, e, "an expression cannot make a %s; write a map instead", e.AsStruct().TypeName())
		case e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction():
			l.call(n, u, e)
		}
	})
}

func (l *linker) call(n int, u unit, e ast.Expr) {
	name, args := e.AsCall().FunctionName(), e.AsCall().Args()
	if hasType(name, args) {
		args = args[1:] // the type
	} else if n := arity(name); n > 0 && len(args) > n {
		l.problem(u, e, "%s() takes %d arguments, not %d", name, n, len(args))
		return
	}
	switch name {
	case fnChanged, fnLookup, fnCount, fnGet, fnList:
	case fnDiff, fnManagers, fnController:
		l.object(n, u, e)
		return
	case fnEvent:
		l.event(u, e)
		return
	default:
		return
	}
	if l.usage == When && name == fnChanged {
		l.problem(u, e, "changed() does not exist here: "+levelsOnly)
		return
	}
	if l.usage == Index {
		l.problem(u, e, "%s() does not exist here: an index sees only object, source and cluster", name)
		return
	}
	first, ok := literal(args[0])
	if !ok {
		l.problem(u, args[0], "the first argument of %s() must be a literal string: it is checked before anything runs", name)
		return
	}
	switch name {
	case fnChanged:
		if p, ok := l.path(u, args[0], first); ok {
			l.edits = append(l.edits, edit{n, e.ID(), []any{len(l.paths)}})
			l.paths = append(l.paths, p)
		}
	case fnLookup, fnCount:
		if source, index, ok := l.index(u, args[0], first); ok {
			l.indexes = append(l.indexes, source+"."+index)
			l.edits = append(l.edits, edit{n, e.ID(), []any{source, index, args[1]}})
		}
	case fnGet, fnList:
		if l.knownSource(u, args[0], first) {
			rest := []any{first}
			for _, arg := range args[1:] {
				rest = append(rest, arg)
			}
			l.edits = append(l.edits, edit{n, e.ID(), rest})
		}
	}
}

// levelsOnly says what an expression of [When] may not do.
const levelsOnly = "when says what holds, not what happened; use filter for that"

// variable checks that a variable exists at this place of use.
func (l *linker) variable(u unit, e ast.Expr) {
	switch name := e.AsIdent(); name {
	case nameOldObject, nameOp:
		switch l.usage { //nolint:exhaustive // the others see all
		case Index:
			l.problem(u, e, "%s does not exist here: an index sees only object, source and cluster", name)
		case When:
			l.problem(u, e, "%s does not exist here: "+levelsOnly, name)
		}
	case nameNow:
		l.note(u, e)
		if l.usage != When && l.usage != Value {
			l.problem(u, e, "now exists in when only, whose value is looked at again and again; a delta is the same whenever it is looked at")
		}
	case nameSince, nameLate, nameRepeat, nameSuppressed, nameObjects, nameEvents:
		l.note(u, e)
		if l.usage != Emit {
			l.problem(u, e, "%s exists in emit only", name)
		}
	case nameEvent:
		l.note(u, e)
		switch l.usage { //nolint:exhaustive // the others may be of a route that another feeds
		case Index:
			l.problem(u, e, "event does not exist here: an index sees only object, source and cluster")
		case When, Query, Objects:
			l.problem(u, e, "event does not exist here: it is what another route made, and this is about objects")
		}
	}
}

// note notes where a variable stands.
func (l *linker) note(u unit, e ast.Expr) {
	place := u.ast.NativeRep().SourceInfo().GetStartLocation(e.ID())
	l.uses = append(l.uses, use{e.AsIdent(), u.define, max(1, place.Line()), max(0, place.Column())})
}

// index takes "source.index" or "index" apart and checks that both exist.
func (l *linker) index(u unit, at ast.Expr, text string) (source, index string, ok bool) {
	source, index, ok = strings.Cut(text, ".")
	if !ok {
		source, index = l.source, text
	}
	if source == "" {
		l.problem(u, at, "there are several sources: say whose index it is, as in %q", slices.Sorted(maps.Keys(l.env.sources))[0]+"."+index)
		return "", "", false
	}
	if !l.knownSource(u, at, source) {
		return "", "", false
	}
	if indexes := l.env.sources[source]; !slices.Contains(indexes, index) {
		near := suggest(index, indexes)
		if near == "" {
			near = "; it has " + strings.Join(indexes, ", ")
		}
		l.problem(u, at, "source %q has no index %q%s", source, index, near)
		return "", "", false
	}
	return source, index, true
}

func (l *linker) knownSource(u unit, at ast.Expr, source string) bool {
	if _, ok := l.env.sources[source]; !ok {
		known := slices.Sorted(maps.Keys(l.env.sources))
		near := suggest(source, known)
		if near == "" {
			near = "; known are " + strings.Join(known, ", ")
		}
		l.problem(u, at, "there is no source %q%s", source, near)
		return false
	}
	l.lookUp(source)
	return true
}

func (l *linker) problem(u unit, at ast.Expr, format string, args ...any) {
	place := u.ast.NativeRep().SourceInfo().GetStartLocation(at.ID())
	l.issues[u.define] = append(l.issues[u.define], Issue{
		Line: max(1, place.Line()), Column: max(0, place.Column()), Message: fmt.Sprintf(format, args...),
	})
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// Optimize implements cel.ASTOptimizer, which is cel-go's way to change a tree: it checks the result again and renumbers it.
func (l *linker) Optimize(ctx *cel.OptimizerContext, tree *ast.AST) *ast.AST {
	main := len(l.units) - 1
	info := tree.SourceInfo()
	shift(info, int32(main))
	root := tree.Expr()
	l.apply(ctx, main, root, func(id int64) int64 { return id })
	for n := main - 1; n >= 0; n-- {
		root = l.bind(ctx, n, root, info)
	}
	return ctx.NewAST(root)
}

// bind wraps root into cel.bind(name of unit n, its tree, root).
func (l *linker) bind(ctx *cel.OptimizerContext, n int, root ast.Expr, info *ast.SourceInfo) ast.Expr {
	original := l.units[n].ast.NativeRep()
	body, bodyInfo := ctx.CopyAST(original)
	ids := make(map[int64]int64)
	pair(original.Expr(), body, ids)
	shift(bodyInfo, int32(n))
	for id, offset := range bodyInfo.OffsetRanges() {
		info.SetOffsetRange(id, offset)
	}
	l.apply(ctx, n, body, func(id int64) int64 { return ids[id] })
	bound, _ := ctx.NewBindMacro(ctx.NewIdent(l.units[n].define).ID(), l.units[n].define, body, root)
	return bound
}

// apply carries out the edits of unit n in its tree.
func (l *linker) apply(ctx *cel.OptimizerContext, n int, tree ast.Expr, renumbered func(int64) int64) {
	byID := make(map[int64]edit)
	for _, edit := range l.edits {
		if edit.unit == n {
			byID[renumbered(edit.id)] = edit
		}
	}
	walk(tree, nil, func(e ast.Expr, _ []string) {
		edit, ok := byID[e.ID()]
		if !ok || e.Kind() != ast.CallKind {
			return
		}
		old := e.AsCall().Args()
		args := []ast.Expr{ctx.NewIdent(nameInput)}
		given := len(args) // those that are not of the edit
		if hasType(e.AsCall().FunctionName(), old) {
			args = append(args, old[0]) // the type
			given++
		}
		for _, arg := range edit.args {
			switch arg := arg.(type) {
			case string:
				args = append(args, ctx.NewLiteral(types.String(arg)))
			case int:
				args = append(args, ctx.NewLiteral(types.Int(arg)))
			default: // one of the call's own arguments, which this tree has under another number
				args = append(args, old[len(old)-(len(edit.args)-(len(args)-given))])
			}
		}
		e.SetKindCase(ctx.NewCall(at+e.AsCall().FunctionName(), args...))
	})
}

// pair maps the ids of a tree to those of its copy.
func pair(a, b ast.Expr, ids map[int64]int64) {
	var order []int64
	walk(a, nil, func(e ast.Expr, _ []string) { order = append(order, e.ID()) })
	i := 0
	walk(b, nil, func(e ast.Expr, _ []string) {
		ids[order[i]] = e.ID()
		i++
	})
}

// shift moves the offsets of a unit to where those of unit n are, and forgets the text of macros, which is for printing only.
func shift(info *ast.SourceInfo, n int32) {
	for id, offset := range info.OffsetRanges() {
		info.SetOffsetRange(id, ast.OffsetRange{Start: offset.Start + n*offsetStep, Stop: offset.Stop + n*offsetStep})
	}
	for id := range info.MacroCalls() {
		info.ClearMacroCall(id)
	}
}
