package check

import (
	"github.com/google/cel-go/cel"

	"github.com/deltarouter/deltarouter/internal/expr/celerr"
	"github.com/deltarouter/deltarouter/internal/expr/diagnose"
	"github.com/deltarouter/deltarouter/internal/expr/jsonval"
	"github.com/deltarouter/deltarouter/internal/expr/syntax"
	"github.com/deltarouter/deltarouter/internal/schema"
)

// Scope is where the expressions of a source are checked: what `object` is, and the defines as they
// are there.
type Scope struct {
	checker *Checker
	CEL     *cel.Env // what checks and plans them
	source  string
	defines map[string]*define
	failed  map[string]*celerr.CompileError // the defines that are wrong here

	aboutEvents bool // of CompileEvent
}

// Parse parses a text and checks its types.
func (s *Scope) Parse(text string) (syntax.Unit, error) {
	parsed, issues := s.CEL.Parse(text)
	if issues.Err() != nil {
		return syntax.Unit{}, s.CompileError("", text, issues)
	}
	tree, failed := s.check("", text, parsed)
	if failed != nil {
		return syntax.Unit{}, failed
	}
	return syntax.Unit{AST: tree, Uses: usedDefines(tree, s.checker.texts)}, nil
}

// ParseOnly parses the text of a define, or of an expression, and does not check its types.
func (s *Scope) ParseOnly(define, text string) (*cel.Ast, error) {
	tree, issues := s.CEL.Parse(text)
	if issues.Err() != nil {
		return nil, s.CompileError(define, text, issues)
	}
	return tree, nil
}

// Compiles reports whether a text has no mistake.
func (s *Scope) Compiles(text string) bool {
	_, err := s.Parse(text)
	return err == nil
}

// Info returns what is known of the objects; nil: nothing.
func (s *Scope) Info() *jsonval.TypeInfo { return s.checker.Infos[s.source] }

// Schema returns the schema of a type of objects by its name; nil: there is none.
func (s *Scope) Schema(name string) *schema.Type { return s.checker.Types.SchemaOf(name) }

// Defined returns what a define is here; its tree is nil if it is wrong here, see Failure.
func (s *Scope) Defined(name string) syntax.Unit { return s.defines[name].unit }

// Failure returns what is wrong with a define here; nil: nothing.
func (s *Scope) Failure(define string) *celerr.CompileError { return s.failed[define] }

// check checks the types of what was parsed.
func (s *Scope) check(define, text string, parsed *cel.Ast) (*cel.Ast, *celerr.CompileError) {
	s.checker.checking.Lock()
	defer s.checker.checking.Unlock()
	s.typeCalls(parsed)
	s.checker.Types.TakeMissed()
	tree, issues := s.CEL.Check(parsed)
	if issues.Err() != nil {
		return nil, s.CompileError(define, text, issues)
	}
	return tree, nil
}

// CompileError makes cel-go's issues ours.
func (s *Scope) CompileError(define, text string, issues *cel.Issues) *celerr.CompileError {
	r := diagnose.Reporter{
		Define: define, Text: text, CEL: s.CEL, Defines: s.checker.texts, Missed: s.checker.Types.TakeMissed(), AboutEvents: s.aboutEvents,
	}
	return r.CompileError(issues)
}
