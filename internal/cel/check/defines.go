package check

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// define is a shared expression. Each use gets a copy of its tree, bound to its name, see package
// resolve.
type define struct {
	name string
	unit syntax.Unit
}

// newScope compiles the defines, in the order of their dependencies, and declares each as a
// variable of its type. Defines with mistakes are declared too, so that each mistake is reported
// once.
func (c *Checker) newScope(base *cel.Env, source string, object *cel.Type, effort *Effort) (*Scope, error) {
	s := &Scope{checker: c, source: source, defines: make(map[string]*define), failed: make(map[string]*celerr.CompileError)}
	var err error
	options := append(variables(object), cel.CustomTypeProvider(c.Types))
	options = append(options, c.typed...)
	if s.CEL, err = base.Extend(options...); err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	if n := len(c.texts); n > maxDefines {
		name := slices.Sorted(maps.Keys(c.texts))[maxDefines]
		return nil, defineError(name, fmt.Sprintf("is one of %d defines, %d at most: remove those that no expression uses, or write some into others", n, maxDefines))
	}
	parsed := make(map[string]*cel.Ast, len(c.texts))
	uses := make(map[string][]string, len(c.texts))
	for _, name := range slices.Sorted(maps.Keys(c.texts)) {
		tree, failed := s.parseDefine(name, c.texts[name])
		if failed != nil {
			s.failed[name] = failed
			continue
		}
		parsed[name] = tree
		uses[name] = usedDefines(tree, c.texts)
	}
	if len(s.failed) > 0 {
		return s, nil
	}
	order, err := orderOf(uses)
	if err != nil {
		return nil, err
	}
	return s, s.declare(order, parsed, uses, effort)
}

// declare declares all defines, and checks them in an order in which each comes after those that it
// uses. One environment has the variables of all: the type of a define is written into its variable
// when the define has been checked, and until then nothing refers to it.
func (s *Scope) declare(order []string, parsed map[string]*cel.Ast, uses map[string][]string, effort *Effort) error {
	types := make(map[string]*cel.Type, len(order))
	vars := make([]cel.EnvOption, 0, len(order))
	for _, name := range order {
		t := *cel.DynType
		types[name] = &t
		vars = append(vars, cel.Variable(name, &t))
	}
	var err error
	if s.CEL, err = s.CEL.Extend(vars...); err != nil {
		return fmt.Errorf("CEL environment with the defines: %w", err)
	}
	for _, name := range order {
		tree, failed := s.check(name, s.checker.texts[name], parsed[name], effort)
		if failed != nil {
			s.failed[name] = failed
		} else {
			*types[name] = *tree.OutputType()
		}
		s.defines[name] = &define{name: name, unit: syntax.Unit{Define: name, AST: tree, Uses: uses[name]}}
	}
	return nil
}

func (s *Scope) parseDefine(name, text string) (*cel.Ast, *celerr.CompileError) {
	problem := func(format string, args ...any) *celerr.CompileError {
		return defineError(name, fmt.Sprintf(format, args...))
	}
	if !regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`).MatchString(name) {
		return nil, problem("the name %q cannot be used in an expression: letters, digits and _ only", name)
	}
	if tree, issues := s.CEL.Compile(name); issues.Err() == nil && tree != nil {
		return nil, problem("the name %q is taken: choose another", name)
	} else if strings.HasPrefix(issues.Errors()[0].Message, "Syntax error") {
		return nil, problem("the name %q is a reserved word of CEL: choose another", name)
	}
	return s.parse(name, text)
}

// usedDefines returns the names in texts that the tree uses, sorted.
func usedDefines(tree *cel.Ast, texts map[string]string) []string {
	var used []string
	syntax.Walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, local []string) {
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

// orderOf returns the defines in an order in which each comes after those that it uses. The error
// names the first cycle and the define that it starts at, or a define that is beyond
// MaxDefineDepth.
func orderOf(uses map[string][]string) (order []string, err error) {
	depth := make(map[string]int, len(uses))
	var visit func(name string, path []string) error
	visit = func(name string, path []string) error {
		if i := slices.Index(path, name); i >= 0 {
			return defineError(name, "defines refer to each other in a cycle: "+strings.Join(append(slices.Clone(path[i:]), name), " → "))
		}
		if depth[name] > 0 {
			return nil
		}
		deepest := 0
		for _, used := range uses[name] {
			if err := visit(used, append(path, name)); err != nil {
				return err
			}
			deepest = max(deepest, depth[used])
		}
		if deepest >= maxDefineDepth {
			return defineError(name, fmt.Sprintf("is the end of a chain of more than %d defines that use each other: write some of them into others", maxDefineDepth))
		}
		depth[name] = deepest + 1
		order = append(order, name)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if err := visit(name, nil); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func defineError(name, message string) *celerr.CompileError {
	return &celerr.CompileError{Define: name, Issues: []celerr.Issue{{Line: 1, Message: message}}}
}
