package compile

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/internal/cel"
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

	names   config.Names
	efforts map[string]*cel.Effort // by the prefix of the scope
}

// addFragments adds the routes of the fragments without mistakes to the plan, and those of the
// former text of the others.
func (c *compiler) addFragments(ctx context.Context) {
	p := c.plan
	p.Accepted = make(map[string][]byte)
	if len(c.main.Fragments) == 0 {
		return
	}
	all := fragments{c, make(config.Names), make(map[string]*cel.Effort)}
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
	of.effort = c.effortOf(f.Scope.Prefix)
	var err error
	if of.env, err = c.exprs.environment(Environment(cfg, c.plan.Types, c.plan.Owners), of.effort); err != nil {
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

// effortOf returns the effort that all fragments with a prefix share.
func (c *fragments) effortOf(prefix string) *cel.Effort {
	if c.efforts[prefix] == nil {
		c.efforts[prefix] = cel.NewEffort(cel.EffortOfOwner)
	}
	return c.efforts[prefix]
}
