package compile

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// clientOf makes the client of a cluster.
type clientOf func(config.Cluster) (*informer.Client, error)

// Plans caches plans of configurations: a simulation starts a router many times with the same
// configuration. The components and the cluster must stay the same. It is not safe for concurrent
// use.
type Plans struct {
	made  map[string]*Plan
	Known *schema.Set
	exprs Expressions
}

// keptPlans is the capacity of the cache.
const keptPlans = 8

// Input names a configuration.
type Input struct {
	Path string
	// Fragments are further fragments, beside the included files.
	Fragments []*config.Fragment
	// Former has the texts of fragments that were accepted before, by their keys: one of them is
	// used if the fragment has mistakes now.
	Former map[string][]byte
	// Tolerant leaves out fragments with mistakes, see Plan.Rejected. Otherwise their problems are
	// those of the configuration.
	Tolerant bool
	// Expressions are those of the former plans, for Make without Plans; nil: none are kept.
	Expressions *Expressions
	// Unfit reports whether a route of the configuration itself may be left out if it does not fit
	// the schemas of the cluster, see Plan.Unfit; nil: its problems are those of the configuration.
	Unfit func(route string) bool
}

// Plan returns the cached plan of unchanged files, or calls Make.
func (k *Plans) Plan(ctx context.Context, in Input, components Components, client clientOf) (*Plan, config.Problems) {
	if k == nil {
		return k.Make(ctx, in, components, client)
	}
	all, err := files.Read(in.Path)
	text := fmt.Sprintf("%q", all)
	if p := k.made[text]; p != nil && err == nil {
		return p, nil
	}
	p, problems := k.Make(ctx, in, components, client)
	if len(problems) == 0 && err == nil && len(p.Config.Include) == 0 && len(in.Fragments) == 0 {
		if k.made == nil || len(k.made) == keptPlans {
			k.made = make(map[string]*Plan)
		}
		k.made[text] = p
	}
	return p, problems
}

// schemas calls newSchemas, or reuses the known schemas.
func (k *Plans) schemas(ask func(group, version string) ([]byte, error)) (*Schemas, error) {
	if k != nil && k.Known != nil {
		return &Schemas{Set: k.Known, Ask: ask, exprs: &k.exprs}, nil
	}
	made, err := newSchemas(ask)
	if k != nil {
		k.Known, made.exprs = made.Set, &k.exprs
	}
	return made, err
}

// Make checks and compiles a configuration file for the cluster of client, which may be nil.
// Answers of the cluster are used if the built-in schemas do not know a resource or find a mistake:
// the cluster may be newer.
func (k *Plans) Make(ctx context.Context, in Input, components Components, client clientOf) (*Plan, config.Problems) {
	cfg, problems := config.Load(in.Path, components.Policy, in.Fragments...)
	if cfg == nil {
		return nil, problems
	}
	for _, f := range cfg.Fragments {
		if text, ok := in.Former[f.Key()]; ok {
			f.Former = text
		}
	}
	var ask func(group, version string) ([]byte, error)
	if c, err := client(cfg.Cluster); err == nil { // opening reports the error
		var done func()
		ask, done = AskCluster(ctx, c)
		defer done()
	}
	known, err := k.schemas(ask)
	if err != nil {
		return nil, append(problems, config.Problem{File: files.Name(in.Path), Message: err.Error()})
	}
	if k == nil {
		known.exprs = in.Expressions
	}
	known.Learn(cfg, false)
	p, found := NewPlan(ctx, cfg, problems, components, known, false)
	if len(found) > len(problems) && ask != nil && known.Failed == nil {
		known.Learn(cfg, true)
		p, found = NewPlan(ctx, cfg, problems, components, known, false)
	}
	if p == nil {
		return nil, found
	}
	if len(found) > len(problems) && len(problems) == 0 && ask != nil && in.Unfit != nil {
		if rest := withoutUnfit(ctx, p, components, known, in.Unfit); rest != nil {
			p, found = rest, nil
		}
	}
	known.exprs.end()
	p.Warnings = NotSilenced(p.Warnings, cfg)
	if !in.Tolerant {
		found = append(found, p.Mistakes()...)
	}
	return p, found
}

// secretChains refuses routes that would make a downstream route write data of Secrets to
// disk. Only a compiled plan shows which routes see Secrets.
func secretChains(routes []Route) (problems config.Problems) {
	for i := range routes {
		r := &routes[i]
		for k := range r.To {
			target := &r.To[k]
			if target.Route == "" {
				continue
			}
			for _, source := range r.SecretSources {
				problems = append(problems, target.Node.Problemf("the backlog of route %q in state.dir would contain events made of Secrets (source %q), which are "+
					"never written to disk: combine both routes in one, or remove state.dir", target.Route, source))
			}
		}
	}
	return problems
}

// checkEventUse refuses `event` and `events` in the expressions of a route with its own sources.
func (c *compiler) checkEventUse(r *config.Route, p *cel.Program, at func(source string) *config.Expr) {
	if p == nil || !slices.Contains(r.Node.Keys(), "from") {
		return // a route without input is reported already
	}
	use, ok := p.UseOf("event")
	if !ok {
		use, ok = p.UseOf("events")
	}
	if !ok {
		return
	}
	e := at(use.Source)
	if define, is := c.cfg.Define[use.Define]; is {
		e = &define
	}
	problem := e.Problem(use.Line, use.Column, "only a downstream route, which has no from, has an event; this one has object")
	if use.Define != "" {
		problem.Message += " (in " + at(use.Source).Path() + ")"
	}
	c.problems = append(c.problems, problem)
}
