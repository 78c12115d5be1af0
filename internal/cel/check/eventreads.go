package check

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// EventRead is a read of a member of the event that fails if the event does not have it.
type EventRead struct {
	Path []string    // below event, such as data and text
	At   []OutlineAt // of the names of Path
	// Always: each evaluation reads it, because it is in no branch and in no loop
	Always bool
}

// EventReads returns the reads of the event in an expression, without those of paths that the
// expression also tests with has() or in, or reads as optional.
func EventReads(u syntax.Unit) []EventRead {
	r := eventReads{unit: u, tested: make(map[string]bool)}
	r.visit(u.AST.NativeRep().Expr(), nil, true)
	return slices.DeleteFunc(r.found, func(read EventRead) bool {
		for n := range read.Path {
			if r.tested[strings.Join(read.Path[:n+1], "\x00")+"\x00"] {
				return true
			}
		}
		return false
	})
}

type eventReads struct {
	unit   syntax.Unit
	found  []EventRead
	tested map[string]bool // paths, joined
}

func (r *eventReads) visit(e ast.Expr, local []string, always bool) {
	if e.Kind() == ast.ComprehensionKind {
		c := e.AsComprehension()
		r.visit(c.IterRange(), local, always)
		r.visit(c.AccuInit(), local, always)
		inside := append(slices.Clone(local), c.AccuVar(), c.IterVar(), c.IterVar2())
		for _, part := range []ast.Expr{c.LoopCondition(), c.LoopStep(), c.Result()} {
			r.visit(part, inside, false)
		}
		return
	}
	if path, tested, ok := eventPath(e, local); ok && len(path) > 0 {
		if tested {
			r.tested[joined(path)] = true
			path = path[:len(path)-1]
		}
		if len(path) > 0 {
			r.found = append(r.found, r.read(path, always))
		}
		return
	}
	r.parts(e, local, always)
}

// parts visits the subexpressions of an expression that is no read of the event.
func (r *eventReads) parts(e ast.Expr, local []string, always bool) {
	branches := 0 // the parts from here on may not be evaluated
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			always = false
		case operators.Conditional:
			branches = 1
		case operators.In:
			if key, ok := syntax.Literal(call.Args()[0]); ok {
				if path, tested, ok := eventPath(call.Args()[1], local); ok && !tested {
					r.tested[joined(append(path, step{key, call.Args()[0]}))] = true
				}
			}
		case "or", "orValue", "optMap", "optFlatMap":
			branches = 1
		}
	}
	for i, part := range syntax.PartsOf(e) {
		r.visit(part, local, always && (branches == 0 || i < branches))
	}
}

// step is the choice of a member by its name, and the expression that makes it.
type step struct {
	name string
	ast.Expr
}

// joined returns a text that is equal for equal paths.
func joined(path []step) string {
	var b strings.Builder
	for _, s := range path {
		b.WriteString(s.name + "\x00")
	}
	return b.String()
}

func (r *eventReads) read(path []step, always bool) EventRead {
	read := EventRead{Always: always}
	for _, s := range path {
		line, column := r.unit.Start(s)
		if s.Kind() == ast.SelectKind { // it starts at its dot
			column++
		}
		read.Path, read.At = append(read.Path, s.name), append(read.At, OutlineAt{Line: line, Column: column})
	}
	return read
}

// eventPath returns the members of the event that an expression reads, one in the other. tested:
// the last one need not be there.
func eventPath(e ast.Expr, local []string) (path []step, tested, ok bool) {
	var of ast.Expr
	var name string
	switch {
	case e.Kind() == ast.IdentKind:
		return nil, false, e.AsIdent() == syntax.VarEvent && !slices.Contains(local, syntax.VarEvent)
	case e.Kind() == ast.SelectKind:
		of, name, tested = e.AsSelect().Operand(), e.AsSelect().FieldName(), e.AsSelect().IsTestOnly()
	case e.Kind() == ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.OptSelect, operators.OptIndex, operators.Index:
			if name, ok = syntax.Literal(call.Args()[1]); !ok {
				return nil, false, false
			}
			of, tested = call.Args()[0], call.FunctionName() != operators.Index
		default:
			return nil, false, false
		}
	default:
		return nil, false, false
	}
	path, optional, ok := eventPath(of, local)
	if !ok || optional { // what follows an optional is not read if it is absent
		return path, optional, ok
	}
	return append(path, step{name, e}), tested, true
}
