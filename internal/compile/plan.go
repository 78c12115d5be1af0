// Package compile turns a configuration into a Plan: every part is checked, every expression is
// compiled, and nothing is opened.
package compile

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/schema"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Plan is a configuration that was checked as far as that is possible without a cluster, with its
// expressions compiled. It is immutable once it is made.
type Plan struct {
	Config  *config.Config
	Sources map[string]Source
	Routes  []Route
	Grants  map[string][]plugins.LookupGrant // by handler
	Types   map[string]*schema.Type          // by source: what its objects look like
	Owners  map[string]expr.Owner            // by source: what controls others
	// What is not wrong, but may not be meant: sources of which too little is known, expressions
	// that may cost too much; fields that may be absent, if that was asked for, and then all that
	// is about expressions.
	Warnings, Optional config.Problems
}

// Source is what is watched for a source, and its indexes.
type Source struct {
	Specs   []informer.Spec
	Indexes map[string][]*expr.Program // by the configured name
}

// Route has nil for what the route does not declare.
type Route struct {
	*config.Route

	// key: that of the route, or of its groups
	FilterProgram, WhenProgram, EmitProgram, KeyProgram *expr.Program
	// the key of the limit
	LimitProgram  *expr.Program
	WatchPrograms map[string]*expr.Program // by source
	HandlerGrants []plugins.LookupGrant    // of its handler
	// with state.dir: the sources of Secrets that it sees
	SecretSources []string
}

// Lookups returns the sources that the route's expressions, or its handler, look things up in.
func (r *Route) Lookups() []string {
	names := SourcesOf(r.HandlerGrants)
	for _, p := range []*expr.Program{r.FilterProgram, r.WhenProgram, r.EmitProgram, r.KeyProgram, r.LimitProgram} {
		if p != nil {
			names = append(names, p.Sources()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NewPlan makes the plan of a configuration that has these problems already. advise: also look for
// what may not be meant, which takes as long again.
func NewPlan(ctx context.Context, cfg *config.Config, problems config.Problems, components Components, known *Schemas, advise bool) (*Plan, config.Problems) {
	problems = slices.Concat(problems,
		checkComponents("handler", cfg.Handlers, components.Handlers), checkComponents("sink", cfg.Sinks, components.Sinks))
	p := &Plan{Config: cfg, Sources: make(map[string]Source)}
	if len(problems) == 0 { // else a kind may not understand what it is given
		p.Grants, problems = grants(cfg, components.Handlers)
		problems = append(problems, checkPrograms(cfg, components.Handlers)...)
	}
	c := compiler{cfg: cfg, advise: advise, used: newUse()}
	types, unknown, warnings := known.Types(cfg, advise)
	problems = append(problems, unknown...)
	p.Types, p.Warnings, p.Owners = types, warnings, known.Owners(cfg)
	var err error
	if c.env, err = known.kept.environment(Environment(cfg, types, p.Owners)); err != nil {
		for _, p := range ProblemsOf(cfg, nil, nil, err) {
			if !(&compiler{problems: problems}).reported(p.Path) {
				problems = append(problems, p)
			}
		}
		return nil, problems
	}
	c.problems = problems
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		p.Sources[name] = c.source(name, cfg.Sources[name])
	}
	for _, r := range cfg.Routes {
		route := c.route(r)
		route.HandlerGrants = p.Grants[r.Handler]
		if cfg.State.Dir != "" {
			route.SecretSources = c.secretsOf(&route)
		}
		p.Routes = append(p.Routes, route)
	}
	if len(c.problems) == 0 { // else a kind may not understand what it is given
		for i := range p.Routes {
			c.outlines(&p.Routes[i], known.Set, components.Sinks)
		}
	}
	c.checkSecretChains(p)
	if advise && len(c.problems) == 0 {
		c.adviseAll(ctx, p)
		c.warnings = slices.Concat(c.warnings, warnAll(cfg.Handlers, components.Handlers), warnAll(cfg.Sinks, components.Sinks))
		c.adviseSecrets(p, func(handler string) bool { return keeps(cfg.Handlers[handler], components.Handlers) })
	}
	if advise {
		p.Optional = c.warnings
	} else {
		p.Warnings = slices.Concat(p.Warnings, c.warnings)
	}
	return p, c.problems.Sorted()
}

// Defines returns all defines as one text.
func (p *Plan) Defines() string {
	text, err := json.Marshal(p.Config.Define)
	if err != nil || len(p.Config.Define) == 0 {
		return ""
	}
	return string(text)
}
