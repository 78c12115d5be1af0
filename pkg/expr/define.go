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

// scope is where the expressions of a source are checked: what `object` is, and the defines as they are there.
type scope struct {
	env     *Env
	cel     *cel.Env
	source  string
	defines map[string]*define
	failed  map[string]*CompileError // the defines that are wrong here

	aboutEvents bool // of CompileEvent
}

// newScope compiles the defines, those first that others use, and declares each as a variable of its type. Those that are wrong are
// declared too, so that each mistake is told once.
func (e *Env) newScope(base *cel.Env, source string, object *cel.Type) (*scope, error) {
	s := &scope{env: e, source: source, defines: make(map[string]*define), failed: make(map[string]*CompileError)}
	var err error
	options := append(variables(object), cel.CustomTypeProvider(e.types))
	declared := make(map[string]bool)
	for _, source := range slices.Sorted(maps.Keys(e.shapes)) { // see typeCalls
		if t := e.types.celOf[e.shapes[source].of]; !declared[t.TypeName()] {
			declared[t.TypeName()] = true
			options = append(options, cel.Variable(at+t.TypeName(), t))
		}
	}
	if s.cel, err = base.Extend(options...); err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	parsed := make(map[string]*cel.Ast, len(e.texts))
	uses := make(map[string][]string, len(e.texts))
	for _, name := range slices.Sorted(maps.Keys(e.texts)) {
		tree, failed := s.parseDefine(name, e.texts[name])
		if failed != nil {
			s.failed[name] = failed
			continue
		}
		parsed[name] = tree
		uses[name] = usedDefines(tree, e.texts)
	}
	if len(s.failed) > 0 {
		return s, nil
	}
	if err := refuseCycles(uses); err != nil {
		return nil, err
	}
	for len(parsed) > 0 {
		if err := s.declareReady(parsed, uses); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// declareReady checks and declares the defines all of whose defines are declared, and takes them out of parsed.
func (s *scope) declareReady(parsed map[string]*cel.Ast, uses map[string][]string) error {
	var vars []cel.EnvOption
	ready := make(map[string]*define)
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		if slices.ContainsFunc(uses[name], func(used string) bool { return s.defines[used] == nil }) {
			continue
		}
		t := cel.DynType
		tree, failed := s.check(name, s.env.texts[name], parsed[name])
		if failed != nil {
			s.failed[name] = failed
		} else {
			t = tree.OutputType()
		}
		vars = append(vars, cel.Variable(name, t))
		ready[name] = &define{name: name, unit: unit{define: name, ast: tree, uses: uses[name]}}
		delete(parsed, name)
	}
	maps.Copy(s.defines, ready)
	extended, err := s.cel.Extend(vars...)
	if err != nil {
		return fmt.Errorf("CEL environment with the defines: %w", err)
	}
	s.cel = extended
	return nil
}

// check checks the types of what was parsed.
func (s *scope) check(define, text string, parsed *cel.Ast) (*cel.Ast, *CompileError) {
	s.env.checking.Lock()
	defer s.env.checking.Unlock()
	s.typeCalls(parsed)
	s.env.types.takeMissed()
	tree, issues := s.cel.Check(parsed)
	if issues.Err() != nil {
		return nil, s.compileError(define, text, issues)
	}
	return tree, nil
}

// typeCalls adds to calls of lookup, get and list a variable of the type of what they find, as their first argument. It has no value.
func (s *scope) typeCalls(parsed *cel.Ast) {
	factory := ast.NewExprFactory()
	next := maxID(parsed)
	walk(parsed.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) {
		if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() || len(e.AsCall().Args()) != arity(e.AsCall().FunctionName()) {
			return
		}
		function, args := e.AsCall().FunctionName(), e.AsCall().Args()
		source, ok := literal(args[0])
		if function == fnLookup {
			of, _, named := strings.Cut(source, ".")
			if source = s.source; named {
				source = of
			}
		}
		found := s.env.shapes[source]
		if !ok || found == nil {
			return
		}
		next++
		t := factory.NewIdent(next, at+s.env.types.celOf[found.of].TypeName())
		e.SetKindCase(factory.NewCall(e.ID(), function, append([]ast.Expr{t}, args...)...))
	})
}

// hasType reports whether a call has that type among its arguments.
func hasType(function string, args []ast.Expr) bool {
	n := arity(function)
	return n > 0 && len(args) == n+1 && args[0].Kind() == ast.IdentKind && strings.HasPrefix(args[0].AsIdent(), at)
}

// arity is how many arguments those functions take that find objects; -1 for others.
func arity(function string) int {
	switch function {
	case fnLookup:
		return 2
	case fnGet:
		return 3
	case fnList:
		return 1
	}
	return -1
}

func maxID(tree *cel.Ast) (highest int64) {
	walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) { highest = max(highest, e.ID()) })
	return highest
}

func (s *scope) parseDefine(name, text string) (*cel.Ast, *CompileError) {
	problem := func(format string, args ...any) *CompileError {
		return &CompileError{Define: name, Issues: []Issue{{Line: 1, Message: fmt.Sprintf(format, args...)}}}
	}
	if !regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`).MatchString(name) {
		return nil, problem("the name %q cannot be used in an expression: letters, digits and _ only", name)
	}
	if tree, issues := s.cel.Compile(name); issues.Err() == nil && tree != nil {
		return nil, problem("the name %q is taken: choose another", name)
	} else if strings.HasPrefix(issues.Errors()[0].Message, "Syntax error") {
		return nil, problem("the name %q is a reserved word of CEL: choose another", name)
	}
	tree, issues := s.cel.Parse(text)
	if issues.Err() != nil {
		return nil, s.compileError(name, text, issues)
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

// partsOf are what an expression that is no loop is made of.
func partsOf(e ast.Expr) (parts []ast.Expr) {
	switch e.Kind() {
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			parts = append(parts, e.AsCall().Target())
		}
		parts = append(parts, e.AsCall().Args()...)
	case ast.SelectKind:
		parts = append(parts, e.AsSelect().Operand())
	case ast.ListKind:
		parts = append(parts, e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			parts = append(parts, field.AsStructField().Value())
		}
	case ast.ComprehensionKind, ast.IdentKind, ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return parts
}

// walk visits e and all below it, with the names that macros have bound there.
func walk(e ast.Expr, local []string, visit func(e ast.Expr, local []string)) {
	visit(e, local)
	if e.Kind() != ast.ComprehensionKind {
		for _, part := range partsOf(e) {
			walk(part, local, visit)
		}
		return
	}
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
}
