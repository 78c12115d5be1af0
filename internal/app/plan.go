package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Components is what the router can be made of; cmd/router/components.go is the list.
type Components struct {
	Handlers []plugins.Factory[plugins.Handler]
	Sinks    []plugins.Factory[plugins.Sink]
	// Emit makes the handler of a route that has `emit` instead of `handle`.
	Emit func(*expr.Program, expr.Cache) plugins.Handler
}

// plan is a configuration in which everything that can be checked without a cluster was checked, and every expression is compiled.
type plan struct {
	config  *config.Config
	sources map[string]sourcePlan
	routes  []routePlan
	grants  map[string][]plugins.LookupGrant // by handler
}

type sourcePlan struct {
	watches []informer.Spec
	indexes map[string][]*expr.Program // by the configured name
}

// routePlan has nil for what the route does not declare.
type routePlan struct {
	*config.Route

	filter, emit, key *expr.Program
	grants            []plugins.LookupGrant // of its handler
}

// lookups returns the sources that the route's expressions, or its handler, look things up in.
func (r *routePlan) lookups() []string {
	names := sourcesOf(r.grants)
	for _, p := range []*expr.Program{r.filter, r.emit, r.key} {
		if p != nil {
			names = append(names, p.Sources()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Check reports every problem of the configuration file that can be found without a cluster. It opens nothing but the file and
// what it names (guests' modules).
func Check(path string, components Components) config.Problems {
	_, problems := makePlan(path, components)
	return problems
}

func makePlan(path string, components Components) (*plan, config.Problems) {
	cfg, problems := config.Load(path)
	if cfg == nil {
		return nil, problems
	}
	problems = append(problems, checkComponents("handler", cfg.Handlers, components.Handlers)...)
	problems = append(problems, checkComponents("sink", cfg.Sinks, components.Sinks)...)
	p := &plan{config: cfg, sources: make(map[string]sourcePlan)}
	if len(problems) == 0 { // else a factory may not understand what it is given
		p.grants, problems = grants(cfg, components.Handlers)
	}
	env, err := expr.NewEnv(environment(cfg))
	if err != nil {
		return nil, append(problems, problemsOf(cfg, nil, err)...)
	}
	c := compiler{env: env, problems: problems, cfg: cfg}
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		p.sources[name] = c.source(name, cfg.Sources[name])
	}
	for _, r := range cfg.Routes {
		route := c.route(r)
		route.grants = p.grants[r.Handle]
		p.routes = append(p.routes, route)
	}
	return p, c.problems.Sorted()
}

// checkComponents lets the factory of each component check its part of the configuration.
func checkComponents[T any](what string, configured map[string]*config.Component, factories []plugins.Factory[T]) (problems config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		if c.Kind == "" {
			continue // reported already
		}
		f := factoryOf(factories, c.Kind)
		if f == nil {
			problems = append(problems, c.Node.Problemf("unknown kind of %s %q; there are: %s", what, c.Kind, kinds(factories)))
			continue
		}
		problems = append(problems, f.Check(c.Config)...)
	}
	return problems
}

func factoryOf[T any](factories []plugins.Factory[T], kind string) *plugins.Factory[T] {
	for i := range factories {
		if factories[i].Kind == kind {
			return &factories[i]
		}
	}
	return nil
}

func kinds[T any](factories []plugins.Factory[T]) string {
	names := make([]string, len(factories))
	for i := range factories {
		names[i] = factories[i].Kind
	}
	return strings.Join(names, ", ")
}

// environment tells the expressions which sources and indexes exist.
func environment(cfg *config.Config) expr.EnvConfig {
	env := expr.EnvConfig{
		Cluster: cfg.Cluster.Name, Define: make(map[string]string), Sources: make(map[string][]string),
	}
	for name, e := range cfg.Define {
		env.Define[name] = e.Text
	}
	for name, s := range cfg.Sources {
		env.Sources[name] = append(index.Builtins(), slices.Sorted(maps.Keys(s.Indexes))...)
	}
	return env
}

// compiler compiles the expressions of a configuration and collects what is wrong with them.
type compiler struct {
	cfg      *config.Config
	env      *expr.Env
	problems config.Problems
}

func (c *compiler) source(name string, s *config.Source) sourcePlan {
	p := sourcePlan{indexes: make(map[string][]*expr.Program)}
	var err error
	if p.watches, err = informer.SpecsOf(s); err != nil && !c.reported("sources."+name) {
		c.problems = append(c.problems, s.Problemf("%v", err))
	}
	for _, index := range slices.Sorted(maps.Keys(s.Indexes)) {
		for i := range s.Indexes[index] {
			p.indexes[index] = append(p.indexes[index], c.compile(&s.Indexes[index][i], expr.Index, name))
		}
	}
	return p
}

// reported says whether there is a problem already with what has this path.
func (c *compiler) reported(path string) bool {
	return slices.ContainsFunc(c.problems, func(p config.Problem) bool { return strings.HasPrefix(p.Path, path+".") })
}

func (c *compiler) route(r *config.Route) routePlan {
	// An index without a source's name means the route's own source; a route with several has to say which.
	source := ""
	if len(r.From) == 1 {
		source = r.From[0]
	}
	return routePlan{
		Route:  r,
		filter: c.compile(r.Filter, expr.Filter, source),
		emit:   c.compile(r.Emit, expr.Emit, source),
		key:    c.compile(r.Key, expr.Key, source),
	}
}

func (c *compiler) compile(e *config.Expr, usage expr.Usage, source string) *expr.Program {
	if e == nil {
		return nil
	}
	program, err := c.env.Compile(e.Text, usage, source)
	if err == nil {
		c.checkLookups(e, program)
		return program
	}
	c.problems = append(c.problems, problemsOf(c.cfg, e, err)...)
	return nil
}

// checkLookups refuses to look things up in a source that does not keep its objects.
func (c *compiler) checkLookups(e *config.Expr, program *expr.Program) {
	for _, name := range program.Sources() {
		if s := c.cfg.Sources[name]; s != nil && s.Cache == config.CacheIdentity {
			c.problems = append(c.problems, e.Problem(1, 0,
				fmt.Sprintf("looks up source %q, which keeps identities only; give it cache: full or cache: metadata", name)))
		}
	}
}

// problemsOf finds the places in the file of what is wrong with an expression, or with the defines that it uses.
func problemsOf(cfg *config.Config, e *config.Expr, err error) (problems config.Problems) {
	for _, failed := range expr.CompileErrors(err) {
		at := e
		if define, ok := cfg.Define[failed.Define]; ok {
			at = &define
		}
		for _, issue := range failed.Issues {
			if at == nil {
				problems = append(problems, config.Problem{Path: "define", Message: issue.Message})
				continue
			}
			problems = append(problems, at.Problem(issue.Line, issue.Column, issue.Message))
		}
	}
	if len(problems) == 0 {
		problems = append(problems, config.Problem{Path: "define", Message: err.Error()})
	}
	return problems
}
