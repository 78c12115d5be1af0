// Package compile turns a configuration into a Plan: it checks every part and compiles every
// expression, but opens nothing.
package compile

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Plan is a configuration with compiled expressions, checked as far as possible without a cluster.
// It is immutable after it is made.
type Plan struct {
	Config  *config.Config
	Sources map[string]Source
	Routes  []Route
	Grants  map[string][]plugins.LookupGrant // by handler
	Types   map[string]*schema.Type          // by source: the type of its objects
	Owners  map[string]cel.Owner             // by source: resources whose objects control others
	// Warnings are about parts that are valid but may be mistaken: sources without a type,
	// expensive expressions, and those of sinks, handlers, traces and the fleet. With advise the
	// latter are in Optional, with all other warnings about expressions.
	Warnings, Optional config.Problems
	// Rejected are the fragments with mistakes. Accepted has the last text without a mistake of
	// each fragment, by its key.
	Rejected []Rejected
	Accepted map[string][]byte
	// Unfit are the routes that were left out, see Input.Unfit. Config does not have them.
	Unfit []Unfit

	faults faults
}

// Source has the watches and indexes of a source.
type Source struct {
	Specs   []informer.Spec
	Indexes map[string][]*cel.Program // by the configured name
	// Kept has the fields that the caches of the source keep. Readers are the reason for them, if
	// the source has `cache: auto`.
	Kept    kept.Set
	Readers []Reader
}

// Route is a configured route with its programs. A program is nil if the route does not declare it.
type Route struct {
	*config.Route

	Config *config.Config // it has the defines of the route: of its fragment, or the whole
	// Instance is the name of the instance of the handler: the handler, or that of the scope.
	// Empty: the route has no handler.
	Instance string

	// KeyProgram is the key of the route or of its groups.
	FilterProgram, WhenProgram, EmitProgram, KeyProgram *cel.Program
	// the key of the limit
	LimitProgram  *cel.Program
	WatchPrograms map[string]*cel.Program // by source
	WithPrograms  map[string]*cel.Program // by name
	HandlerGrants []plugins.LookupGrant   // of its handler
	// Secret: the route sees Secrets, or gets events of a route that does
	Secret bool
	// with state.dir: the sources of Secrets that the route sees
	SecretSources []string
}

// Lookups returns the sources in which the expressions and the handler of the route look objects
// up.
func (r *Route) Lookups() []string {
	names := SourcesOf(r.HandlerGrants)
	for _, p := range []*cel.Program{r.FilterProgram, r.WhenProgram, r.EmitProgram, r.KeyProgram, r.LimitProgram} {
		if p != nil {
			names = append(names, p.Sources()...)
		}
	}
	for _, p := range r.WithPrograms {
		names = append(names, p.Sources()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NewPlan makes the plan of a configuration with the given problems. With advise it also looks for
// likely mistakes, which doubles the time. Mistakes of fragments are in Plan.Rejected, unless their
// scope is strict.
func NewPlan(ctx context.Context, cfg *config.Config, problems config.Problems, components Components, known *Schemas, advise bool) (*Plan, config.Problems) {
	problems = slices.Concat(problems,
		checkComponents("handler", cfg.Handlers, components.Handlers), checkComponents("sink", cfg.Sinks, components.Sinks),
		checkTraces(cfg.Traces), checkFleet(cfg))
	p := &Plan{Config: cfg, Sources: make(map[string]Source)}
	p.faults = faults{make(map[string]config.Problems), make(map[[2]string]bool)}
	if len(problems) == 0 { // a kind may not understand an invalid configuration
		p.Grants, problems = grants(cfg, components.Handlers)
		problems = append(problems, checkPrograms(cfg, components.Handlers)...)
	}
	c := compiler{exprs: known.expressions(), cfg: cfg, main: cfg, advise: advise, used: newUse(), plan: p, kinds: components.Sinks, handlers: components.Handlers, known: known}
	types, unknown, warnings := known.Types(cfg, advise)
	problems = append(problems, unknown...)
	p.Types, p.Warnings, p.Owners = types, warnings, known.Owners(cfg)
	var err error
	if c.env, err = c.exprs.environment(Environment(cfg, types, p.Owners), nil); err != nil {
		for _, p := range ProblemsOf(cfg, nil, nil, err) {
			if !(&compiler{problems: problems}).reported(p.Path) {
				problems = append(problems, p)
			}
		}
		return nil, problems
	}
	c.problems = problems
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		p.Sources[name] = c.source(name, cfg.Sources[name], known.Set)
	}
	p.Routes = c.routes(slices.DeleteFunc(slices.Clone(cfg.Routes), func(r *config.Route) bool { return r.Fragment != nil }))
	if len(c.problems) == 0 { // a kind may not understand an invalid configuration
		adviseBodies(&c, p.Routes)
	}
	sound := len(c.problems) == 0
	c.addFragments(ctx)
	p.keep(components.Handlers)
	if sound {
		c.warnings = slices.Concat(c.warnings, warnAll(cfg.Handlers, components.Handlers), warnAll(cfg.Sinks, components.Sinks), warnTraces(cfg.Traces), warnFleet(cfg.Fleet))
	}
	if advise && sound {
		c.adviseRoutes(ctx, p.Routes)
		c.adviseRest(p)
		adviseApplies(&c, p)
		c.adviseSecrets(p, func(handler string) bool { return keeps(cfg.Handlers[handler], components.Handlers) })
	}
	if advise {
		p.Optional = c.warnings
	} else {
		p.Warnings = slices.Concat(p.Warnings, c.warnings)
	}
	return p, c.problems.Sorted()
}

// routes compiles routes of one configuration. Their problems are those of the compiler.
func (c *compiler) routes(configured []*config.Route) (routes []Route) {
	for _, r := range configured {
		n := len(c.problems)
		route := c.route(r)
		c.blame(r, n)
		route.Config, route.HandlerGrants, route.Instance = c.cfg, c.plan.Grants[r.Handler], r.Scope().Qualified(r.Handler)
		secrets := c.secretsOf(&route)
		if route.Secret = len(secrets) > 0; c.main.State.Dir != "" {
			route.SecretSources = secrets
		}
		routes = append(routes, route)
	}
	passSecrets(routes)
	if len(c.problems) == 0 { // a kind may not understand an invalid configuration
		all := newChains(routes)
		for i := range routes {
			n := len(c.problems)
			c.outlines(&routes[i], c.known.Set, c.kinds)
			checkChains(c, &routes[i], all)
			c.blame(routes[i].Route, n)
		}
		c.problems = append(c.problems, checkWorkers(c, routes, c.plan.Routes)...)
	}
	c.problems = append(c.problems, secretChains(routes)...)
	return routes
}

// Defines returns all defines of the configuration itself as one text.
func (p *Plan) Defines() string { return definesOf(p.Config) }

// Defines returns all defines that the route may use as one text.
func (r *Route) Defines() string { return definesOf(r.Config) }

func definesOf(cfg *config.Config) string {
	text, err := json.Marshal(cfg.Define)
	if err != nil || len(cfg.Define) == 0 {
		return ""
	}
	return string(text)
}
