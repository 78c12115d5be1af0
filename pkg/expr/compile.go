package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// Usage is what an expression is for. It decides what it may see and what it must result in.
type Usage uint8

// The usages.
const (
	Filter  Usage = iota + 1 // a bool; see [Program.Match]
	Index                    // a string, number or bool, or a list or map of them, from object, source and cluster alone; see [Program.Keys]
	Emit                     // a map or a list of maps; see [Program.Emit]
	Key                      // a string, int or bool; see [Program.Key]
	Query                    // a bool, as cheap as an Index has to be: it is asked about many objects; see [Program.Match]
	Value                    // anything; see [Program.Value]
	Objects                  // objects that lookup, list or get has found, or one of them; see [Env.CompileObjects]
	When                     // a bool, from object, now, source and cluster alone: what holds as long as the object is as it is; see [Program.Match]
)

// The cost limits of one evaluation, in CEL's units: about one per step.
const (
	costLimit      = 1_000_000
	indexCostLimit = 100_000
	// workPerCost is what the meter counts for a unit of cost. A unit of work is about a nanosecond, or a byte of JSON read: 100 MB, 10 MB for
	// an index. So an evaluation ends within about 100 ms of CPU, whatever it does.
	workPerCost = 100
)

// Compile compiles an expression for a usage. sources are those of the route or index: the expression must be right for each. A bare
// index name belongs to the source if there is just one. The error is one or more *[CompileError], see [CompileErrors]; those with
// Define set are about a define, which may be fine elsewhere: an index cannot use one that calls lookup. Source is set if there are
// several sources and the expression is not equally wrong for all.
func (e *Env) Compile(text string, usage Usage, sources ...string) (*Program, error) {
	if len(sources) == 1 {
		return e.scopeOf(sources[0]).compile(text, usage, sources[0], sources)
	}
	if !slices.ContainsFunc(sources, func(source string) bool { return e.scopes[source] != nil }) {
		return e.scopes[""].compile(text, usage, "", sources)
	}
	var failed [][]*CompileError
	programs := make(map[string]*Program, len(sources))
	for _, source := range sources {
		p, err := e.scopeOf(source).compile(text, usage, "", []string{source})
		programs[source] = p
		if err == nil {
			continue
		}
		mistakes := CompileErrors(err)
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

// joinSources makes one error of those for each source. What is wrong for all alike is told once.
func joinSources(failed [][]*CompileError, sources int) error {
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
			case 0: // told already
				continue
			case sources:
				count[text], mistake.Source = 0, ""
			}
			all = append(all, mistake)
		}
	}
	return joinErrors(all)
}

func (s *scope) compile(text string, usage Usage, source string, of []string) (*Program, error) {
	parsed, issues := s.cel.Parse(text)
	if issues.Err() != nil {
		return nil, s.compileError("", text, issues)
	}
	tree, failed := s.check("", text, parsed)
	if failed != nil {
		return nil, failed
	}
	main := unit{ast: tree, uses: s.uses(tree)}
	l := &linker{scope: s, env: s.env, usage: usage, source: source, of: of}
	l.collect(main)
	if err := l.failedDefines(); err != nil {
		return nil, err
	}
	if problem := resultProblem(tree.OutputType(), usage); problem != "" {
		return nil, &CompileError{Issues: []Issue{{Line: 1, Message: problem}}}
	}
	linked, err := l.link(main)
	if err != nil {
		return nil, err
	}
	p := &Program{
		env: s.env, scope: s, usage: usage, limit: costLimit, units: l.units, info: linked.NativeRep().SourceInfo(),
		linked: linked != tree, paths: l.paths, source: types.String(source), sources: slices.Sorted(slices.Values(l.sources)),
		shape: s.env.shapes[s.source], from: source, uses: l.uses, indexes: l.indexes,
	}
	if usage == Index || usage == Query {
		p.limit = indexCostLimit
	}
	p.inspect(linked)
	if err := p.estimate(linked); err != nil {
		return nil, err
	}
	if p.program, err = s.cel.Program(linked, p.options(linked)...); err != nil {
		return nil, p.planError(err)
	}
	return p, nil
}

// planError is about a call with constant arguments that fails already, as int("x") does.
func (p *Program) planError(err error) error {
	issue := Issue{Line: 1, Message: err.Error()}
	out := &CompileError{}
	if celErr, ok := errors.AsType[*types.Err](err); ok {
		define, line, column := p.place(celErr.NodeID())
		if line > 0 {
			out.Define, issue.Line, issue.Column = define, line, column
		}
	}
	out.Issues = []Issue{issue}
	return out
}

// uses returns the defines that the checked tree refers to, sorted.
func (s *scope) uses(tree *cel.Ast) []string { return usedDefines(tree, s.env.texts) }

// options: steps and calls are only counted where there can be more than the text is long.
func (p *Program) options(tree *cel.Ast) []cel.ProgramOption {
	g := guard{program: p, weighing: !p.linear(tree), rounds: rounds(tree.NativeRep().Expr())}
	return []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.CustomDecorator(g.decorate)}
}

// inspect notes what the tree has: loops, names of variables and the literal names that errors may quote.
func (p *Program) inspect(tree *cel.Ast) {
	walk(tree.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			p.loops = true
		case ast.IdentKind:
			p.refers = true
		case ast.SelectKind:
			p.names = append(p.names, e.AsSelect().FieldName())
		case ast.LiteralKind:
			if s, ok := e.AsLiteral().(types.String); ok {
				p.names = append(p.names, string(s))
			}
		default:
		}
	})
}

// resultProblem says why a result of this type is of no use, or "".
func resultProblem(t *cel.Type, usage Usage) string {
	want, ok := "", false
	switch usage {
	case Filter, Query, When:
		want, ok = "true or false", t.Kind() == types.BoolKind
	case Index:
		t = unwrapOptional(t)
		want = "a string, a number, a bool, or a list or map of them"
		ok = isKeyType(t)
	case Emit:
		t = unwrapOptional(t)
		want = "a map or a list of maps"
		if ok = isEvent(t); !ok && t.Kind() == types.ListKind {
			ok = len(t.Parameters()) != 1 || isEvent(t.Parameters()[0]) || t.Parameters()[0].Kind() == types.DynKind || t.Parameters()[0].Kind() == types.TypeParamKind
		}
	case Key:
		want = "a string, an int or a bool"
		ok = t.Kind() == types.StringKind || t.Kind() == types.IntKind || t.Kind() == types.UintKind || t.Kind() == types.BoolKind
	case Value:
		ok = true
	case Objects:
		want = "objects that lookup, list or get has found"
		ok = isObjects(t)
	default:
		return fmt.Sprintf("unknown usage %d", usage)
	}
	if ok || t.Kind() == types.DynKind {
		return ""
	}
	return fmt.Sprintf("the result must be %s, but it is of type %s", want, cel.FormatCELType(t))
}

// isKeyType reports whether an index may result in this type, or in a list or map of it. Of a map the keys count.
func isKeyType(t *cel.Type) bool {
	if kind := t.Kind(); (kind == types.ListKind || kind == types.MapKind) && len(t.Parameters()) > 0 {
		t = unwrapOptional(t.Parameters()[0])
	}
	switch t.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.NullTypeKind, types.DynKind, types.TypeParamKind:
		return true
	default:
		return false
	}
}

func unwrapOptional(t *cel.Type) *cel.Type {
	if t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName() && len(t.Parameters()) == 1 {
		return t.Parameters()[0]
	}
	return t
}

// isEvent reports whether values of the type are the data of an event, or one with a type or subject.
func isEvent(t *cel.Type) bool {
	return t.Kind() == types.MapKind || t.Kind() == types.StructKind || t.IsExactType(eventType)
}

// place finds where in which text the node of the linked tree stands. Line 0: not known.
func (p *Program) place(id int64) (define string, line, column int) {
	offset, ok := p.info.GetOffsetRange(id)
	if !ok {
		return "", 0, 0
	}
	u := p.units[len(p.units)-1]
	if p.linked {
		n := int(offset.Start) / offsetStep
		if n >= len(p.units) {
			return "", 0, 0
		}
		u = p.units[n]
		offset.Start %= offsetStep
	}
	location := u.ast.NativeRep().SourceInfo().GetLocationByOffset(offset.Start)
	return u.define, location.Line(), location.Column()
}
