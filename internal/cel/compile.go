package cel

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/cost"
)

// Usage is the purpose of an expression, see package check.
type Usage = check.Usage

// The usages.
const (
	Filter  = check.Filter
	Index   = check.Index
	Emit    = check.Emit
	Key     = check.Key
	Query   = check.Query
	Value   = check.Value
	Objects = check.Objects
	When    = check.When
)

// Compile compiles an expression for a usage. sources are the sources of the route or index: the
// expression must be correct for each. An index name without source belongs to the source if there
// is just one. The error is one or more *[celerr.CompileError], see [celerr.CompileErrors]; those
// with Define set concern a define, which may be correct elsewhere: an index cannot use one that
// calls lookup. Source is set if there are several sources and the mistake does not concern all.
func (e *Env) Compile(text string, usage Usage, sources ...string) (*Program, error) {
	return e.CompileWithin(nil, text, usage, sources...)
}

// CompileWithin is Compile, if the effort permits it.
func (e *Env) CompileWithin(effort *Effort, text string, usage Usage, sources ...string) (*Program, error) {
	if len(sources) == 1 {
		return e.compile(e.checker.Scope(sources[0]), text, usage, effort, sources[0], sources)
	}
	if !slices.ContainsFunc(sources, e.checker.Knows) {
		return e.compile(e.checker.Scope(""), text, usage, effort, "", sources)
	}
	var failed [][]*celerr.CompileError
	programs := make(map[string]*Program, len(sources))
	for _, source := range sources {
		p, err := e.compile(e.checker.Scope(source), text, usage, effort, "", []string{source})
		programs[source] = p
		if err == nil {
			continue
		}
		mistakes := celerr.CompileErrors(err)
		if len(mistakes) == 0 {
			return nil, err
		}
		failed = append(failed, mistakes)
		for _, mistake := range mistakes {
			mistake.Source = source
		}
	}
	if len(failed) > 0 {
		return nil, joinSources(failed, len(sources))
	}
	first := *programs[sources[0]]
	first.others, first.from = programs, strings.Join(sources, " ")
	return &first, nil
}

// joinSources joins the errors of the sources. A mistake that all sources have is reported once.
func joinSources(failed [][]*celerr.CompileError, sources int) error {
	count := make(map[string]int)
	for _, mistakes := range failed {
		for _, mistake := range mistakes {
			count[mistake.Error()]++
		}
	}
	var all []error
	for _, mistakes := range failed {
		for _, mistake := range mistakes {
			switch text := mistake.Error(); count[text] {
			case 0: // reported already
				continue
			case sources:
				count[text], mistake.Source = 0, ""
			}
			all = append(all, mistake)
		}
	}
	return celerr.Join(all)
}

func (e *Env) compile(s *check.Scope, text string, usage Usage, effort *Effort, source string, of []string) (*Program, error) {
	main, err := s.Parse(text, effort)
	if err != nil {
		return nil, err
	}
	linked, err := check.Resolve(s, &e.names, check.Place{Usage: usage, Source: source, Of: of}, main)
	if err != nil {
		return nil, err
	}
	p := &Program{
		env: e, scope: s, usage: usage, limit: cost.Limit, linked: linked, source: types.String(source), sources: linked.Sources,
		info: s.Info(), from: source, reads: linked.Reads,
	}
	if usage == Index || usage == Query {
		p.limit = cost.IndexLimit
	}
	p.inspect(linked.Tree)
	if err := p.estimate(linked.Tree); err != nil {
		return nil, err
	}
	if p.program, err = s.CEL.Program(linked.Tree, cost.Options(s.CEL, linked.Tree)...); err != nil {
		return nil, p.planError(err)
	}
	return p, nil
}

// Parse parses a text about the objects of a source without checking its types. define is the name
// of the define with the text; empty: none.
func (e *Env) Parse(define, text, source string) (*cel.Ast, error) {
	return e.checker.Scope(source).ParseOnly(define, text)
}

// Define returns the text of a shared expression.
func (e *Env) Define(name string) (text string, ok bool) { return e.checker.Define(name) }

// planError describes a call with constant arguments that fails already at compile time, as
// int("x") does.
func (p *Program) planError(err error) error {
	issue := celerr.Issue{Line: 1, Message: err.Error()}
	out := &celerr.CompileError{}
	if celErr, ok := errors.AsType[*types.Err](err); ok {
		define, line, column := p.linked.Texts.Place(celErr.NodeID())
		if line > 0 {
			out.Define, issue.Line, issue.Column = define, line, column
		}
	}
	out.Issues = []celerr.Issue{issue}
	return out
}
