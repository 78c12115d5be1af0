package compile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Rejected is a fragment with mistakes.
type Rejected struct {
	Fragment *config.Fragment
	Problems config.Problems
	// Former: the routes of its former text are used instead.
	Former bool
}

// Mistakes returns the problems of all rejected fragments.
func (p *Plan) Mistakes() (problems config.Problems) {
	for _, r := range p.Rejected {
		problems = append(problems, r.Problems...)
	}
	return problems.Sorted()
}

// Disabled returns the beginnings of the names of routes that may be disabled, because a fragment
// has mistakes: their state is kept.
func (p *Plan) Disabled() (prefixes []string) {
	for _, r := range p.Rejected {
		if !r.Former {
			prefixes = append(prefixes, r.Fragment.Scope.Prefix+"/")
		}
	}
	return prefixes
}

// String describes the mistakes, and their effect.
func (r *Rejected) String() string {
	text := r.Problems[0].Error()
	if n := len(r.Problems) - 1; n > 0 {
		text = fmt.Sprintf("%s (and %d more)", text, n)
	}
	if r.Former {
		return text + "; its former routes continue"
	}
	return text + "; its routes are disabled"
}

// fragments compiles the fragments of a configuration.
type fragments struct {
	*compiler // of the configuration

	envs  environments
	names config.Names
}

// addFragments adds the routes of the fragments without mistakes to the plan, and those of the
// former text of the others.
func (c *compiler) addFragments(ctx context.Context) {
	p := c.plan
	p.Accepted = make(map[string][]byte)
	if len(c.main.Fragments) == 0 {
		return
	}
	all := fragments{c, make(environments), make(config.Names)}
	for _, f := range c.main.Fragments {
		problems := f.Problems
		if f.Config != nil {
			problems = all.add(ctx, f, f.Config, f.Problems)
		}
		switch {
		case len(problems) == 0:
			p.Accepted[f.Key()] = f.Data
		case f.Scope.Strict:
			c.problems = append(c.problems, problems...)
		default:
			if f.Former != nil { // it may be valid again later
				p.Accepted[f.Key()] = f.Former
			}
			p.Rejected = append(p.Rejected, Rejected{f, f.Located(problems), all.addFormer(ctx, f)})
		}
	}
	cfg := *c.main
	cfg.Routes = nil
	for i := range p.Routes {
		cfg.Routes = append(cfg.Routes, p.Routes[i].Route)
	}
	p.Config = &cfg
}

// addFormer adds the routes of the former text of a fragment to the plan, and reports whether there
// is one without mistakes.
func (c *fragments) addFormer(ctx context.Context, f *config.Fragment) bool {
	if f.Former == nil {
		return false
	}
	cfg, problems := c.main.Fragment(f, f.Former)
	if cfg == nil || len(c.add(ctx, f, cfg, problems)) > 0 {
		return false
	}
	return true
}

// add compiles a text of a fragment, which may have problems already. Without problems it adds the
// routes to the plan.
func (c *fragments) add(ctx context.Context, f *config.Fragment, cfg *config.Config, problems config.Problems) config.Problems {
	of := *c.compiler
	of.cfg, of.problems, of.warnings = cfg, slices.Clone(problems), nil
	of.used.defines = make(map[string]bool)
	var err error
	if of.env, err = c.envs.of(&of); err != nil {
		return append(of.problems, ProblemsOf(cfg, nil, nil, err)...).Sorted()
	}
	routes := of.routes(cfg.Routes)
	if len(of.problems) == 0 {
		of.problems = c.names.Add(&config.Fragment{Name: f.Name, Data: f.Data, Scope: f.Scope, Config: cfg})
	}
	if len(of.problems) > 0 {
		return of.problems.Sorted()
	}
	if c.advise && len(c.problems) == 0 {
		of.adviseRoutes(ctx, routes)
	}
	c.warnings = append(c.warnings, of.warnings...)
	c.plan.Routes = append(c.plan.Routes, routes...)
	return nil
}

// environments has the environments of fragments. Fragments with the same sources and defines share
// one.
type environments map[string]*expr.Env

// of returns the environment of a fragment.
func (e environments) of(c *compiler) (*expr.Env, error) {
	cfg := Environment(c.cfg, c.plan.Types, c.plan.Owners)
	key, err := json.Marshal([]any{slices.Sorted(maps.Keys(c.cfg.Sources)), cfg.Define})
	if err != nil {
		return nil, err
	}
	if env := e[string(key)]; env != nil {
		return env, nil
	}
	env, err := expr.NewEnv(cfg)
	if err == nil {
		e[string(key)] = env
	}
	return env, err
}

// Unfit is a route that is disabled, because its expressions do not fit the schemas that the
// cluster has now. Without these the configuration has no mistake.
type Unfit struct {
	Route    *config.Route
	Problems config.Problems
}

// String describes the mistakes, and their effect.
func (u *Unfit) String() string {
	text := u.Problems[0].Error()
	if n := len(u.Problems) - 1; n > 0 {
		text = fmt.Sprintf("%s (and %d more)", text, n)
	}
	return text + "; it is disabled, and its backlog is kept: correct the expression; or the schema, then send SIGHUP"
}

// UnfitIDs returns the ids of the unfit routes.
func (p *Plan) UnfitIDs() (ids []string) {
	for i := range p.Unfit {
		ids = append(ids, p.Unfit[i].Route.ID)
	}
	return ids
}

// faults are the problems of parts of a configuration that can be left out.
type faults struct {
	routes  map[string]config.Problems // by name
	indexes map[[2]string]bool         // source and index
}

// blame takes the problems of the compiler since the first n, which a part of a route has.
func (c *compiler) blame(r *config.Route, n int) {
	if len(c.problems) > n {
		c.plan.faults.routes[r.Name] = append(c.plan.faults.routes[r.Name], c.problems[n:]...)
	}
}

// withoutUnfit makes a plan without the routes that have a problem with the schemas of the cluster,
// of those that leave permits. Without the cluster's answers the configuration must have no
// problem: otherwise it is its own mistake. It returns nil if the rest has problems, too.
func withoutUnfit(ctx context.Context, p *Plan, components Components, known *Schemas, leave func(route string) bool) *Plan {
	builtin, err := newSchemas(nil)
	if err != nil {
		return nil
	}
	if _, problems := NewPlan(ctx, p.Config, nil, components, builtin, false); len(problems) > 0 {
		return nil
	}
	var unfit []Unfit
	for {
		cfg, gone := leaveOut(p, leave)
		if len(gone) == 0 && len(p.faults.indexes) == 0 {
			return nil
		}
		unfit = append(unfit, gone...)
		next, problems := NewPlan(ctx, cfg, nil, components, known, false)
		switch {
		case next == nil:
			return nil
		case len(problems) == 0:
			next.Unfit = unfit
			return next
		}
		p = next
	}
}

// leaveOut returns the configuration of a plan without the parts with problems, and the routes that
// are left out: also those that have them as a target, and those without input.
func leaveOut(p *Plan, leave func(route string) bool) (*config.Config, []Unfit) {
	cfg := *p.Config
	cfg.Sources, cfg.Routes = maps.Clone(cfg.Sources), slices.Clone(cfg.Routes)
	for at := range p.faults.indexes {
		source := *cfg.Sources[at[0]]
		source.Indexes = maps.Clone(source.Indexes)
		delete(source.Indexes, at[1])
		cfg.Sources[at[0]] = &source
	}
	why := make(map[string]config.Problems)
	for name, problems := range p.faults.routes {
		if leave(name) {
			why[name] = problems
		}
	}
	var gone []Unfit
	for again := true; again; {
		again = false
		for i, r := range cfg.Routes {
			switch {
			case r == nil || r.Fragment != nil:
				continue
			case why[r.Name] == nil:
				why[r.Name] = chained(r, why)
			}
			if why[r.Name] != nil {
				gone, again, cfg.Routes[i] = append(gone, Unfit{r, why[r.Name]}), true, nil
			}
		}
	}
	cfg.Routes = slices.DeleteFunc(cfg.Routes, func(r *config.Route) bool { return r == nil })
	for i, r := range cfg.Routes {
		if slices.ContainsFunc(r.Upstream, func(name string) bool { return why[name] != nil }) {
			rest := *r
			rest.Upstream = slices.DeleteFunc(slices.Clone(r.Upstream), func(name string) bool { return why[name] != nil })
			cfg.Routes[i] = &rest
		}
	}
	return &cfg, gone
}

// chained returns the reason to leave out a route whose target is left out, or all of whose
// upstream routes are; nil: there is none.
func chained(r *config.Route, gone map[string]config.Problems) config.Problems {
	for i := range r.To {
		if target := r.To[i].Route; target != "" && gone[target] != nil {
			return config.Problems{r.To[i].Node.Problemf("its target route %q is disabled", target)}
		}
	}
	if len(r.Upstream) > 0 && !slices.ContainsFunc(r.Upstream, func(name string) bool { return gone[name] == nil }) {
		return config.Problems{r.Node.Problemf("its upstream routes are disabled")}
	}
	return nil
}
