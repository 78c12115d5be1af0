package check

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/internal/expr/celerr"
	"github.com/deltarouter/deltarouter/internal/expr/syntax"
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
func (c *Checker) newScope(base *cel.Env, source string, object *cel.Type) (*Scope, error) {
	s := &Scope{checker: c, source: source, defines: make(map[string]*define), failed: make(map[string]*celerr.CompileError)}
	var err error
	options := append(variables(object), cel.CustomTypeProvider(c.Types))
	declared := make(map[string]bool)
	for _, source := range slices.Sorted(maps.Keys(c.Infos)) { // see typeCalls
		if t := c.Types.CELType(c.Infos[source].Schema); !declared[t.TypeName()] {
			declared[t.TypeName()] = true
			options = append(options, cel.Variable(syntax.Prefix+t.TypeName(), t))
		}
	}
	if s.CEL, err = base.Extend(options...); err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
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

// declareReady checks and declares the defines whose own defines are all declared, and removes them
// from parsed.
func (s *Scope) declareReady(parsed map[string]*cel.Ast, uses map[string][]string) error {
	var vars []cel.EnvOption
	ready := make(map[string]*define)
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		if slices.ContainsFunc(uses[name], func(used string) bool { return s.defines[used] == nil }) {
			continue
		}
		t := cel.DynType
		tree, failed := s.check(name, s.checker.texts[name], parsed[name])
		if failed != nil {
			s.failed[name] = failed
		} else {
			t = tree.OutputType()
		}
		vars = append(vars, cel.Variable(name, t))
		ready[name] = &define{name: name, unit: syntax.Unit{Define: name, AST: tree, Uses: uses[name]}}
		delete(parsed, name)
	}
	maps.Copy(s.defines, ready)
	extended, err := s.CEL.Extend(vars...)
	if err != nil {
		return fmt.Errorf("CEL environment with the defines: %w", err)
	}
	s.CEL = extended
	return nil
}

func (s *Scope) parseDefine(name, text string) (*cel.Ast, *celerr.CompileError) {
	problem := func(format string, args ...any) *celerr.CompileError {
		return &celerr.CompileError{Define: name, Issues: []celerr.Issue{{Line: 1, Message: fmt.Sprintf(format, args...)}}}
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

// refuseCycles returns an error that names the first cycle and the define that it starts at.
func refuseCycles(uses map[string][]string) error {
	done := make(map[string]bool)
	var visit func(name string, path []string) error
	visit = func(name string, path []string) error {
		if i := slices.Index(path, name); i >= 0 {
			cycle := strings.Join(append(slices.Clone(path[i:]), name), " → ")
			return &celerr.CompileError{Define: name, Issues: []celerr.Issue{{Line: 1, Message: "defines refer to each other in a cycle: " + cycle}}}
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
