package compile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

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
	return text + "; it is disabled, and its backlog is kept: correct the expression or the schema, which is compared again each minute"
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
	why := leaveOutHandlers(p, &cfg, leave)
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

// leaveOutHandlers removes the handlers that look up an index with problems, and returns why the
// routes with these handlers are left out, too. A handler stays if one of its routes must stay.
func leaveOutHandlers(p *Plan, cfg *config.Config, leave func(route string) bool) (why map[string]config.Problems) {
	why = make(map[string]config.Problems)
	cfg.Handlers = maps.Clone(cfg.Handlers)
	for handler, grants := range p.Grants {
		i := slices.IndexFunc(grants, func(g plugins.LookupGrant) bool { return p.faults.indexes[[2]string{g.Source, g.Index}] })
		stays := func(r *config.Route) bool {
			return r != nil && r.Handler == handler && (r.Fragment != nil || !leave(r.Name))
		}
		if i < 0 || slices.ContainsFunc(cfg.Routes, stays) {
			continue
		}
		delete(cfg.Handlers, handler)
		for _, r := range cfg.Routes {
			if r != nil && r.Handler == handler {
				why[r.Name] = config.Problems{r.Node.At("handler").Problemf("handler %q looks up the index %s.%s, which does not fit", handler, grants[i].Source, grants[i].Index)}
			}
		}
	}
	return why
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
