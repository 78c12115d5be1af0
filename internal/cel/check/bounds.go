package check

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/containers"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// The bounds of a text that is compiled. cel-go cannot be interrupted: its time grows with the
// square of the number of nodes, and with the fourth power of the depth of a type. Within the
// bounds it is about a second at most.
const (
	// maxNodes bounds the nodes of an expression together with the defines that it uses. A macro
	// such as map() makes several.
	maxNodes = 4000
	// maxNesting bounds the depth of a type: of lists, maps and optional values in each other.
	maxNesting = 30
	// maxDefines bounds the defines of a configuration or an included file.
	maxDefines = 500
	// maxDefineDepth bounds a chain of defines, each of which uses the next one.
	maxDefineDepth = 100
)

// tooLarge returns an error if a parsed text has too many nodes.
func tooLarge(define string, parsed *cel.Ast) *celerr.CompileError {
	if Nodes(parsed) <= maxNodes {
		return nil
	}
	return boundError(define, parsed, parsed.NativeRep().Expr(), fmt.Sprintf(
		"has more than %d parts (operators, calls, fields and values; a macro such as map has several): split it among several routes or keys, "+
			"or use a handler", maxNodes))
}

// Nodes returns the number of nodes of a tree, or a number above MaxNodes if it has more.
func Nodes(tree *cel.Ast) (count int) {
	var visit func(e ast.Expr)
	visit = func(e ast.Expr) {
		if count++; count > maxNodes { // macros may share parts, so that the whole tree may be huge
			return
		}
		for _, part := range parts(e) {
			visit(part)
		}
	}
	visit(tree.NativeRep().Expr())
	return count
}

func parts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.ComprehensionKind {
		return syntax.PartsOf(e)
	}
	c := e.AsComprehension()
	return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
}

// tooDeep returns an error if a type of a parsed text would be too deep. The text is within
// MaxNodes.
func (s *Scope) tooDeep(define string, parsed *cel.Ast) *celerr.CompileError {
	n := nesting{functions: s.CEL.Functions(), defines: s.defines}
	n.visit(parsed.NativeRep().Expr())
	switch {
	case n.deepest.depth > maxNesting:
		return boundError(define, parsed, n.deepestAt, fmt.Sprintf(
			"nests lists, maps or optional values more than %d deep: write dyn(…) around an inner one, so that its type is not followed", maxNesting))
	case n.deepest.depth*(1+n.untyped) > maxNesting && n.untyped > 0:
		return boundError(define, parsed, n.untypedAt, fmt.Sprintf(
			"%d variables of macros are empty lists, maps or optional values, and lists or maps are nested %d deep: together more than %d; "+
				"write dyn([]), dyn({}) or dyn(optional.none()) for an empty one", n.untyped, n.deepest.depth, maxNesting))
	}
	return nil
}

func boundError(define string, parsed *cel.Ast, at ast.Expr, message string) *celerr.CompileError {
	issue := celerr.Issue{Line: 1, Message: message}
	if l := parsed.NativeRep().SourceInfo().GetStartLocation(at.ID()); l.Line() > 0 {
		issue.Line, issue.Column = l.Line(), l.Column()
	}
	return &celerr.CompileError{Define: define, Issues: []celerr.Issue{issue}}
}

// shape is what is known of a type before it is checked.
type shape struct {
	depth int  // at most
	open  bool // it has a part that any type may take the place of, as the element of []
}

func (s shape) or(other shape) shape {
	return shape{max(s.depth, other.depth), s.open && other.open}
}

// nesting follows the depth of types from the values upwards, with the declarations of the
// functions. A variable with an open type can become as deep as anything that it is compared with:
// so each such variable may add the largest depth once more.
type nesting struct {
	functions map[string]*decls.FunctionDecl
	defines   map[string]*define
	local     []variable

	deepest   shape
	deepestAt ast.Expr
	untyped   int // variables with an open type
	untypedAt ast.Expr
}

type variable struct {
	name string
	shape
}

func (n *nesting) visit(e ast.Expr) shape {
	s := n.shape(e)
	if s.depth > n.deepest.depth {
		n.deepest, n.deepestAt = s, e
	}
	return s
}

func (n *nesting) shape(e ast.Expr) shape {
	switch e.Kind() {
	case ast.IdentKind:
		return n.variable(e.AsIdent())
	case ast.CallKind:
		return n.call(e.AsCall())
	case ast.ComprehensionKind:
		return n.loop(e)
	case ast.SelectKind:
		return n.visit(e.AsSelect().Operand())
	case ast.ListKind, ast.MapKind:
		return wrapped(n.all(syntax.PartsOf(e)))
	case ast.StructKind:
		n.all(syntax.PartsOf(e))
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return shape{}
}

// all visits expressions.
func (n *nesting) all(parts []ast.Expr) []shape {
	shapes := make([]shape, len(parts))
	for i, part := range parts {
		shapes[i] = n.visit(part)
	}
	return shapes
}

// wrapped returns the shape of a list or map. A map with open values and keys of a known type is
// open, so one open part is enough.
func wrapped(parts []shape) shape {
	s := shape{open: len(parts) == 0}
	for _, part := range parts {
		s = shape{max(s.depth, part.depth), s.open || part.open}
	}
	return shape{s.depth + 1, s.open}
}

func (n *nesting) variable(name string) shape {
	for _, v := range slices.Backward(n.local) {
		if v.name == name {
			return v.shape
		}
	}
	switch d := n.defines[name]; {
	case d != nil && d.unit.AST != nil:
		return shape{depth: depthOf(d.unit.AST.OutputType())}
	case name == syntax.VarObjects || name == syntax.VarEvents:
		return shape{depth: 1}
	}
	return shape{}
}

func depthOf(t *cel.Type) (depth int) {
	for _, of := range t.Parameters() {
		depth = max(depth, 1+depthOf(of))
	}
	return depth
}

func (n *nesting) call(c ast.CallExpr) shape {
	name, args := c.FunctionName(), c.Args()
	member := c.IsMemberFunction()
	if member {
		prefix, ok := containers.ToQualifiedName(c.Target())
		if namespaced := prefix + "." + name; ok && n.functions[namespaced] != nil {
			name, member = namespaced, false
		} else {
			args = append([]ast.Expr{c.Target()}, args...)
		}
	}
	shapes := n.all(args)
	if name == operators.OptSelect && len(shapes) > 0 { // its result is not declared
		return shape{max(shapes[0].depth, 1), shapes[0].open}
	}
	var result shape
	fn := n.functions[name]
	if fn == nil {
		return result
	}
	for _, o := range fn.OverloadDecls() {
		if o.IsMemberFunction() == member && len(o.ArgTypes()) == len(shapes) {
			of := resultOf(o, shapes)
			result = shape{max(result.depth, of.depth), result.open || of.open}
		}
	}
	return result
}

// resultOf returns the shape of the result of a function, in which the type parameters have the
// shapes that the arguments give them.
func resultOf(o *decls.OverloadDecl, args []shape) shape {
	result := shape{depth: depthOf(o.ResultType())}
	for _, name := range o.TypeParams() {
		level := levelOf(o.ResultType(), name)
		if level < 0 {
			continue
		}
		given := shape{open: true}
		for i, t := range o.ArgTypes() {
			if at := levelOf(t, name); at >= 0 {
				given = given.or(shape{max(args[i].depth-at, 0), args[i].open})
			}
		}
		result = shape{max(result.depth, level+given.depth), result.open || given.open}
	}
	return result
}

// levelOf returns the greatest number of types around a type parameter; -1: it does not occur.
func levelOf(t *cel.Type, param string) int {
	if t.Kind() == types.TypeParamKind && t.TypeName() == param {
		return 0
	}
	level := -1
	for _, of := range t.Parameters() {
		if at := levelOf(of, param); at >= 0 {
			level = max(level, at+1)
		}
	}
	return level
}

// loop returns the shape of the result of a macro.
func (n *nesting) loop(e ast.Expr) shape {
	c := e.AsComprehension()
	of, accu := n.visit(c.IterRange()), n.visit(c.AccuInit())
	outer := len(n.local)
	defer func() { n.local = n.local[:outer] }()
	element := shape{max(of.depth-1, 0), of.open && c.IterVar() != "#unused"} // as cel.bind calls it
	n.local = append(n.local, variable{c.AccuVar(), accu}, variable{c.IterVar(), element})
	if c.HasIterVar2() {
		n.local = append(n.local, variable{c.IterVar2(), element})
	}
	n.visit(c.LoopCondition())
	accu = accu.or(n.visit(c.LoopStep()))
	for _, s := range []shape{element, accu} {
		if s.open {
			n.untyped, n.untypedAt = n.untyped+1, e
		}
	}
	n.local = append(n.local[:outer], variable{c.AccuVar(), accu})
	return n.visit(c.Result())
}
