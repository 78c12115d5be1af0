package expr

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// define is a shared expression. Those that use it get a copy of its tree, bound to its name, see link.go.
type define struct {
	name string
	unit unit
}

// unit is one text that was compiled by itself: a define or the expression proper.
type unit struct {
	define string // empty: the expression proper
	ast    *cel.Ast
	uses   []string // the defines that it refers to itself, sorted
}

// CompileErrors takes an error of [NewEnv] or [Env.Compile] apart. It is empty if none of them made the error.
func CompileErrors(err error) []*CompileError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*CompileError
		for _, e := range joined.Unwrap() {
			all = append(all, CompileErrors(e)...)
		}
		return all
	}
	if e, ok := errors.AsType[*CompileError](err); ok {
		return []*CompileError{e}
	}
	return nil
}

// define compiles the defines, those first that others use, and declares each as a variable of its type.
func (e *Env) define(texts map[string]string) error {
	parsed := make(map[string]*cel.Ast, len(texts))
	uses := make(map[string][]string, len(texts))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		tree, err := e.parseDefine(name, texts[name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		parsed[name] = tree
		uses[name] = usedDefines(tree, texts)
	}
	if len(errs) > 0 {
		return joinErrors(errs)
	}
	if err := refuseCycles(uses); err != nil {
		return err
	}
	for len(parsed) > 0 {
		if err := e.declareReady(parsed, uses); err != nil {
			return err
		}
	}
	return nil
}

// declareReady checks and declares the defines all of whose defines are declared, and takes them out of parsed.
func (e *Env) declareReady(parsed map[string]*cel.Ast, uses map[string][]string) error {
	var vars []cel.EnvOption
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		if slices.ContainsFunc(uses[name], func(used string) bool { return e.defines[used] == nil }) {
			continue
		}
		tree, issues := e.cel.Check(parsed[name])
		if issues.Err() != nil {
			errs = append(errs, e.compileError(name, issues))
			continue
		}
		vars = append(vars, cel.Variable(name, tree.OutputType()))
		defer func() {
			e.defines[name] = &define{name: name, unit: unit{define: name, ast: tree, uses: uses[name]}}
			delete(parsed, name)
		}()
	}
	if len(errs) > 0 {
		return joinErrors(errs)
	}
	extended, err := e.cel.Extend(vars...)
	if err != nil {
		return fmt.Errorf("CEL environment with the defines: %w", err)
	}
	e.cel = extended
	return nil
}

func (e *Env) parseDefine(name, text string) (*cel.Ast, error) {
	problem := func(format string, args ...any) error {
		return &CompileError{Define: name, Issues: []Issue{{Line: 1, Message: fmt.Sprintf(format, args...)}}}
	}
	if !regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`).MatchString(name) {
		return nil, problem("the name %q cannot be used in an expression: letters, digits and _ only", name)
	}
	if tree, issues := e.cel.Compile(name); issues.Err() == nil && tree != nil {
		return nil, problem("the name %q is taken: choose another", name)
	} else if strings.HasPrefix(issues.Errors()[0].Message, "Syntax error") {
		return nil, problem("the name %q is a reserved word of CEL: choose another", name)
	}
	tree, issues := e.cel.Parse(text)
	if issues.Err() != nil {
		return nil, e.compileError(name, issues)
	}
	return tree, nil
}

// usedDefines returns the names in texts that the tree refers to, sorted.
func usedDefines(tree *cel.Ast, texts map[string]string) []string {
	var used []string
	walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, local []string) {
		if e.Kind() != ast.IdentKind || slices.Contains(local, e.AsIdent()) {
			return
		}
		if _, ok := texts[e.AsIdent()]; ok && !slices.Contains(used, e.AsIdent()) {
			used = append(used, e.AsIdent())
		}
	})
	slices.Sort(used)
	return used
}

// refuseCycles returns an error that names the first cycle, with the define it starts at.
func refuseCycles(uses map[string][]string) error {
	done := make(map[string]bool)
	var visit func(name string, path []string) error
	visit = func(name string, path []string) error {
		if i := slices.Index(path, name); i >= 0 {
			cycle := strings.Join(append(slices.Clone(path[i:]), name), " → ")
			return &CompileError{Define: name, Issues: []Issue{{Line: 1, Message: "defines refer to each other in a circle: " + cycle}}}
		}
		if done[name] {
			return nil
		}
		done[name] = true
		for _, used := range uses[name] {
			if err := visit(used, append(path, name)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if err := visit(name, nil); err != nil {
			return err
		}
	}
	return nil
}

// walk visits e and all below it, with the names that macros have bound there.
func walk(e ast.Expr, local []string, visit func(e ast.Expr, local []string)) {
	visit(e, local)
	switch e.Kind() {
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		walk(c.IterRange(), local, visit)
		walk(c.AccuInit(), local, visit)
		result := append(slices.Clone(local), c.AccuVar())
		loop := append(slices.Clone(result), c.IterVar())
		if c.HasIterVar2() {
			loop = append(loop, c.IterVar2())
		}
		walk(c.LoopCondition(), loop, visit)
		walk(c.LoopStep(), loop, visit)
		walk(c.Result(), result, visit)
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			walk(e.AsCall().Target(), local, visit)
		}
		for _, arg := range e.AsCall().Args() {
			walk(arg, local, visit)
		}
	case ast.SelectKind:
		walk(e.AsSelect().Operand(), local, visit)
	case ast.ListKind:
		for _, elem := range e.AsList().Elements() {
			walk(elem, local, visit)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			walk(entry.AsMapEntry().Key(), local, visit)
			walk(entry.AsMapEntry().Value(), local, visit)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			walk(field.AsStructField().Value(), local, visit)
		}
	case ast.IdentKind, ast.LiteralKind, ast.UnspecifiedExprKind:
	}
}
