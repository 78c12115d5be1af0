package check

import (
	"github.com/google/cel-go/cel"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
)

// Scope is the environment of the expressions of one source: the type of `object`, and the defines
// compiled with it.
type Scope struct {
	checker *Checker
	CEL     *cel.Env // checks and plans the expressions
	source  string
	defines map[string]*define
	failed  map[string]*celerr.CompileError // the defines with a mistake

	aboutEvents bool // of CompileEvent
}

// Parse parses a text and checks its types, if the effort permits it.
func (s *Scope) Parse(text string, effort *Effort) (syntax.Unit, error) {
	parsed, failed := s.parse("", text)
	if failed != nil {
		return syntax.Unit{}, failed
	}
	tree, failed := s.check("", text, parsed, effort)
	if failed != nil {
		return syntax.Unit{}, failed
	}
	return syntax.Unit{AST: tree, Uses: usedDefines(tree, s.checker.texts)}, nil
}

// ParseOnly parses the text of a define, or of an expression, without checking its types.
func (s *Scope) ParseOnly(define, text string) (*cel.Ast, error) {
	tree, failed := s.parse(define, text)
	if failed != nil {
		return nil, failed
	}
	return tree, nil
}

// parse parses a text, which is within MaxNodes then.
func (s *Scope) parse(define, text string) (*cel.Ast, *celerr.CompileError) {
	parsed, issues := s.CEL.Parse(text)
	if issues.Err() != nil {
		return nil, s.CompileError(define, text, issues)
	}
	if failed := tooLarge(define, parsed); failed != nil {
		return nil, failed
	}
	return parsed, nil
}

// Compiles reports whether a text has no mistake.
func (s *Scope) Compiles(text string) bool {
	_, err := s.Parse(text, nil)
	return err == nil
}

// Info returns the known type of the objects; nil: none.
func (s *Scope) Info() *jsonval.TypeInfo { return s.checker.Infos[s.source] }

// Schema returns the schema of a type of objects by its name; nil: there is none.
func (s *Scope) Schema(name string) *schema.Type { return s.checker.Types.SchemaOf(name) }

// Defined returns a define as compiled in this scope; its tree is nil if it has a mistake, see
// Failure.
func (s *Scope) Defined(name string) syntax.Unit { return s.defines[name].unit }

// Failure returns the mistake of a define in this scope; nil: none.
func (s *Scope) Failure(define string) *celerr.CompileError { return s.failed[define] }

// check checks the types of a parsed expression.
func (s *Scope) check(define, text string, parsed *cel.Ast, effort *Effort) (*cel.Ast, *celerr.CompileError) {
	if failed := effort.spendOn(define, parsed); failed != nil {
		return nil, failed
	}
	if failed := s.tooDeep(define, parsed); failed != nil {
		return nil, failed
	}
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

// CompileError makes a CompileError of cel-go's issues.
func (s *Scope) CompileError(define, text string, issues *cel.Issues) *celerr.CompileError {
	r := typeset.Reporter{
		Define: define, Text: text, CEL: s.CEL, Defines: s.checker.texts, Missed: s.checker.Types.TakeMissed(), AboutEvents: s.aboutEvents,
	}
	return r.CompileError(issues)
}
