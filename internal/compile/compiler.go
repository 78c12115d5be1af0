package compile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// compiler compiles the expressions of a configuration and collects their problems.
type compiler struct {
	cfg       *config.Config // the main configuration, or that of a fragment
	main      *config.Config
	plan      *Plan
	kinds     []plugins.SinkKind
	handlers  []plugins.HandlerKind
	known     *Schemas
	exprs     *Expressions
	env       *environment
	effort    *cel.Effort // of the owner of the fragment; nil: no bound
	exhausted bool        // reported
	problems  config.Problems
	warnings  config.Problems
	advise    bool // collect warnings
	used      use  // names that expressions use; only with advise
}

func (c *compiler) source(name string, s *config.Source, known *schema.Set) Source {
	p := Source{Indexes: make(map[string][]*cel.Program)}
	var err error
	if p.Specs, err = informer.SpecsOf(s); err != nil && !c.reported("sources."+name) {
		c.problems = append(c.problems, s.Problemf("%v", err))
	}
	c.checkScope(s, known)
	for _, index := range slices.Sorted(maps.Keys(s.Indexes)) {
		for i := range s.Indexes[index] {
			program := c.compile(&s.Indexes[index][i], cel.Index, name)
			if program == nil {
				c.plan.faults.indexes[[2]string{name, index}] = true
			}
			p.Indexes[index] = append(p.Indexes[index], program)
		}
	}
	return p
}

// checkScope refuses namespaces for a resource that is known to have none.
func (c *compiler) checkScope(s *config.Source, known *schema.Set) {
	group, version, resource, err := config.ParseResource(s.Resource)
	if err != nil {
		return
	}
	if r, ok := known.Resource(group, version, resource); !ok || r.Namespaced {
		return
	}
	for _, key := range []string{"namespaces", "namespaceSelector"} {
		if n := s.At(key); !n.IsZero() {
			c.problems = append(c.problems, n.Problemf("objects of %s are in no namespace: remove it", s.Resource))
		}
	}
}

// reported says whether there is a problem at a path or below it.
func (c *compiler) reported(path string) bool {
	return slices.ContainsFunc(c.problems, func(p config.Problem) bool { return p.Path == path || strings.HasPrefix(p.Path, path+".") })
}

func (c *compiler) route(r *config.Route) Route {
	p := Route{
		Route:         r,
		FilterProgram: c.condition(r.Filter, cel.Filter, r.From),
		EmitProgram:   c.compile(r.Emit, cel.Emit, r.From...),
		KeyProgram:    c.compile(cmp.Or(r.Key, r.Batch.By), cel.Key, r.From...),
	}
	p.WatchPrograms, p.WithPrograms = c.requeue(r), compileWith(c, r)
	p.WhenProgram = c.when(r, p.EmitProgram)
	if r.Limit != nil {
		p.LimitProgram = c.compile(r.Limit.Key, cel.Key, r.From...)
		c.checkEventUse(r, p.LimitProgram, func(string) *config.Expr { return r.Limit.Key })
	}
	c.checkEventUse(r, p.FilterProgram, r.Filter.For)
	c.checkEventUse(r, p.EmitProgram, func(string) *config.Expr { return r.Emit })
	c.checkEventUse(r, p.KeyProgram, func(string) *config.Expr { return cmp.Or(r.Key, r.Batch.By) })
	for group, one := range map[string]string{"objects": "object", "events": "event"} {
		if r.Batch.By == nil && p.EmitProgram != nil && p.EmitProgram.Uses(group) {
			c.problems = append(c.problems, r.Emit.Problem(1, 0, group+" is for groups: set batch.by, or write "+one))
		}
	}
	return p
}

// compileWith compiles the values of with, by their names.
func compileWith(c *compiler, r *config.Route) map[string]*cel.Program {
	programs := make(map[string]*cel.Program)
	for _, name := range slices.Sorted(maps.Keys(r.With)) {
		e := r.With[name]
		program := c.compile(&e, cel.Value, r.From...)
		if program == nil {
			continue
		}
		c.checkEventUse(r, program, func(string) *config.Expr { return &e })
		for _, source := range program.Sources() {
			if s := c.main.Sources[source]; r.Workers != nil && s != nil && s.Secrets {
				c.problems = append(c.problems, e.Problem(1, 0, fmt.Sprintf(
					"source %q has the data of Secrets, which does not leave the leader: remove workers, or look nothing up in it", source)))
			}
		}
		programs[name] = program
	}
	return programs
}

func (c *compiler) compile(e *config.Expr, usage cel.Usage, sources ...string) *cel.Program {
	if e == nil {
		return nil
	}
	program, err := c.exprs.compile(c.env, c.effort, e.Text, usage, sources)
	if err == nil {
		c.checkLookups(e, program)
		c.checkExcluded(e, program, sources)
		if c.advise {
			c.warn(e, program.Warnings())
			c.used.add(program)
		} else {
			c.warn(e, program.CostWarnings())
		}
		return program
	}
	failed(c, e, sources, err)
	return nil
}

// failed reports the errors of an expression. Once the effort is spent, all further expressions
// have the same problem, so only the first of them is named.
func failed(c *compiler, e *config.Expr, sources []string, err error) {
	if c.exhausted {
		return
	}
	c.exhausted = !c.effort.Spend(0)
	c.problems = append(c.problems, ProblemsOf(c.cfg, e, sources, err)...)
}

// warn adds warnings about expressions that may be mistaken or expensive. An expression that is too
// expensive is a problem, unless its line has `# check: ok`.
func (c *compiler) warn(e *config.Expr, warnings []cel.Warning) {
	for _, w := range warnings {
		at := e
		if define, ok := c.cfg.Define[w.Define]; ok {
			at = &define
		}
		p := at.Problem(w.Line, w.Column, w.Message)
		switch {
		case silenced.MatchString(p.Text):
		case w.Excessive && !slices.Contains(c.problems, p):
			c.problems = append(c.problems, p)
		case !w.Excessive:
			c.warnf(p)
		}
	}
}

// checkLookups refuses look-ups in a source that caches identities only.
func (c *compiler) checkLookups(e *config.Expr, program *cel.Program) {
	for _, name := range program.Sources() {
		if s := c.cfg.Sources[name]; s != nil && s.Cache == config.CacheIdentity {
			c.problems = append(c.problems, e.Problem(1, 0,
				fmt.Sprintf("looks up source %q, which caches identities only; give it cache: full or cache: metadata", name)))
		}
	}
}

// checkExcluded refuses reads of fields that the source excludes: they would be absent from every
// object.
func (c *compiler) checkExcluded(e *config.Expr, program *cel.Program, sources []string) {
	for _, name := range sources {
		s := c.cfg.Sources[name]
		if s == nil {
			continue
		}
		for _, excluded := range s.ExcludeFields {
			places := program.Reads(excluded)
			if len(places) == 0 {
				continue
			}
			at := e
			if define, ok := c.cfg.Define[places[0].Define]; ok {
				at = &define
			}
			p := at.Problem(places[0].Line, places[0].Column, fmt.Sprintf("source %q excludes %s, so that no object has it: remove it from excludeFields, or do not read it", name, excluded))
			if !silenced.MatchString(p.Text) && !slices.Contains(c.problems, p) {
				c.problems = append(c.problems, p)
			}
		}
	}
}

// ProblemsOf locates the errors of an expression of these sources, or of the defines in it, in the
// configuration.
func ProblemsOf(cfg *config.Config, e *config.Expr, sources []string, err error) (problems config.Problems) {
	for _, failed := range cel.CompileErrors(err) {
		at := e
		if define, ok := cfg.Define[failed.Define]; ok {
			at = &define
		}
		for _, issue := range failed.Issues {
			if at == nil {
				problems = append(problems, config.Problem{Path: "define", Message: issue.Message})
				continue
			}
			problems = append(problems, at.Problem(issue.Line, issue.Column, issue.Message+whereOf(failed, e, sources)))
		}
	}
	if len(problems) == 0 {
		problems = append(problems, config.Problem{Path: "define", Message: err.Error()})
	}
	return problems
}

// whereOf adds to a message the source, if the expression may be valid for another one, and the
// expression that uses a define.
func whereOf(failed *cel.CompileError, e *config.Expr, sources []string) string {
	source := failed.Source
	if source == "" && failed.Define != "" && len(sources) == 1 {
		source = sources[0]
	}
	switch {
	case failed.Define != "" && e != nil && source != "":
		return fmt.Sprintf(" (for source %q, in %s)", source, e.Path())
	case failed.Define != "" && e != nil:
		return fmt.Sprintf(" (in %s)", e.Path())
	case source != "":
		return fmt.Sprintf(" (for source %q)", source)
	}
	return ""
}

// Place returns the position of a failed evaluation in the configuration as file:line:column.
func Place(cfg *config.Config, e *config.Expr, failed *cel.EvalError) string {
	if define, ok := cfg.Define[failed.Define]; ok {
		e = &define
	}
	p := e.Problem(max(1, failed.Line), failed.Column, "")
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}
