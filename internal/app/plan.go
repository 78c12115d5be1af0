package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// plan is a configuration in which everything that can be checked without a cluster was checked, and every expression is compiled.
type plan struct {
	config  *config.Config
	sources map[string]sourcePlan
	routes  []routePlan
	grants  map[string][]plugins.LookupGrant // by handler
	feeds   map[string]string                // by sink: the route that it feeds
	types   map[string]*schema.Type          // by source: what its objects look like
	owners  map[string]expr.Owner            // by source: what controls others
	// What is not wrong, but may not be meant: sources of which too little is known, expressions that may cost too much; fields that may be
	// absent, if that was asked for, and then all that is about expressions.
	warnings, optional config.Problems
}

type sourcePlan struct {
	watches []informer.Spec
	indexes map[string][]*expr.Program // by the configured name
}

// routePlan has nil for what the route does not declare.
type routePlan struct {
	*config.Route

	filter, when, emit, key *expr.Program            // key: that of the route, or of its groups
	limit                   *expr.Program            // the key of the limit
	requeue                 map[string]*expr.Program // by source
	grants                  []plugins.LookupGrant    // of its handler
}

// lookups returns the sources that the route's expressions, or its handler, look things up in.
func (r *routePlan) lookups() []string {
	names := sourcesOf(r.grants)
	for _, p := range []*expr.Program{r.filter, r.when, r.emit, r.key, r.limit} {
		if p != nil {
			names = append(names, p.Sources()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// clientOf gives the client of a cluster.
type clientOf func(config.Cluster) (*informer.Client, error)

// Plans keeps what was made of some configurations: in a simulation a router starts again and again with the same one. The components and
// the cluster have to be the same, too. It is not safe for concurrent use.
type Plans struct {
	made  map[string]*plan
	known *schema.Set
	asked expr.EnvConfig
	env   *expr.Env // for asked; nil: none was made
}

// keptPlans is how many there are at most.
const keptPlans = 8

// plan is make, unless the file is as it was before.
func (k *Plans) plan(ctx context.Context, path string, components Components, client clientOf) (*plan, config.Problems) {
	if k == nil {
		return k.make(ctx, path, components, client)
	}
	text, err := os.ReadFile(path)
	if p := k.made[string(text)]; p != nil && err == nil {
		return p, nil
	}
	p, problems := k.make(ctx, path, components, client)
	if len(problems) == 0 && err == nil {
		if k.made == nil || len(k.made) == keptPlans {
			k.made = make(map[string]*plan)
		}
		k.made[string(text)] = p
	}
	return p, problems
}

// schemas is newSchemas, but for what is known already.
func (k *Plans) schemas(ask func(group, version string) ([]byte, error)) (*schemas, error) {
	if k != nil && k.known != nil {
		return &schemas{set: k.known, ask: ask, kept: k}, nil
	}
	made, err := newSchemas(ask)
	if k != nil {
		k.known, made.kept = made.set, k
	}
	return made, err
}

// environment is expr.NewEnv, but for what was asked for last.
func (k *Plans) environment(cfg expr.EnvConfig) (env *expr.Env, err error) {
	if k == nil {
		return expr.NewEnv(cfg)
	}
	if k.env == nil || !reflect.DeepEqual(cfg, k.asked) {
		k.asked = cfg
		k.env, err = expr.NewEnv(cfg)
	}
	return k.env, err
}

// make checks the configuration file and compiles what is in it, for a cluster that client, if it is not nil, can be asked about. What
// the cluster says counts where the built-in schemas do not know a resource or find a mistake: the cluster may be newer.
func (k *Plans) make(ctx context.Context, path string, components Components, client clientOf) (*plan, config.Problems) {
	cfg, problems := config.Load(path)
	if cfg == nil {
		return nil, problems
	}
	var ask func(group, version string) ([]byte, error)
	if c, err := client(cfg.Cluster); err == nil { // else opening will say so
		var done func()
		ask, done = asking(ctx, c)
		defer done()
	}
	known, err := k.schemas(ask)
	if err != nil {
		return nil, append(problems, config.Problem{File: path, Message: err.Error()})
	}
	known.learn(cfg, false)
	p, found := planOf(ctx, cfg, problems, components, known, false)
	if len(found) > len(problems) && ask != nil && known.failed == nil {
		known.learn(cfg, true)
		return planOf(ctx, cfg, problems, components, known, false)
	}
	return p, found
}

// planOf makes the plan of a configuration that has these problems already. advise: also look for what may not be meant, which takes as
// long again.
func planOf(ctx context.Context, cfg *config.Config, problems config.Problems, components Components, known *schemas, advise bool) (*plan, config.Problems) {
	problems = slices.Concat(problems,
		checkComponents("handler", cfg.Handlers, components.Handlers), checkComponents("sink", cfg.Sinks, components.Sinks))
	cfg, feeds, wrong := feed(cfg, components.Sinks)
	p := &plan{config: cfg, sources: make(map[string]sourcePlan), feeds: feeds}
	if len(problems) == 0 { // else a factory may not understand what it is given
		p.grants, problems = grants(cfg, components.Handlers)
		problems = append(problems, checkPrograms(cfg, components.Handlers)...)
	}
	problems = append(problems, wrong...)
	c := compiler{cfg: cfg, advise: advise, used: newUse()}
	types, warnings := known.types(cfg)
	p.types, p.warnings, p.owners = types, warnings, known.owners(cfg)
	var err error
	if c.env, err = known.kept.environment(environment(cfg, types, p.owners)); err != nil {
		for _, p := range problemsOf(cfg, nil, nil, err) {
			if !(&compiler{problems: problems}).reported(p.Path) {
				problems = append(problems, p)
			}
		}
		return nil, problems
	}
	c.problems = problems
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		p.sources[name] = c.source(name, cfg.Sources[name])
	}
	for _, r := range cfg.Routes {
		route := c.route(r)
		route.grants = p.grants[r.Handle]
		p.routes = append(p.routes, route)
	}
	c.feeders(p)
	if advise && len(c.problems) == 0 {
		c.adviseAll(ctx, p)
	}
	if advise {
		p.optional = c.warnings
	} else {
		p.warnings = slices.Concat(p.warnings, c.warnings)
	}
	return p, c.problems.Sorted()
}

// compiler compiles the expressions of a configuration and collects what is wrong with them.
type compiler struct {
	cfg      *config.Config
	env      *expr.Env
	problems config.Problems
	warnings config.Problems
	advise   bool // look for them
	used     use  // by the expressions; only if advise
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
	return slices.ContainsFunc(c.problems, func(p config.Problem) bool { return p.Path == path || strings.HasPrefix(p.Path, path+".") })
}

func (c *compiler) route(r *config.Route) routePlan {
	p := routePlan{
		Route:  r,
		filter: c.condition(r.Filter, expr.Filter, r.From),
		emit:   c.compile(r.Emit, expr.Emit, r.From...),
		key:    c.compile(cmp.Or(r.Key, r.Batch.By), expr.Key, r.From...),
	}
	p.requeue = c.requeue(r)
	p.when = c.when(r, p.emit)
	if r.Limit != nil {
		p.limit = c.compile(r.Limit.Key, expr.Key, r.From...)
		c.eventOf(r, p.limit, func(string) *config.Expr { return r.Limit.Key })
	}
	c.eventOf(r, p.filter, r.Filter.For)
	c.eventOf(r, p.emit, func(string) *config.Expr { return r.Emit })
	c.eventOf(r, p.key, func(string) *config.Expr { return cmp.Or(r.Key, r.Batch.By) })
	for group, one := range map[string]string{"objects": "object", "events": "event"} {
		if r.Batch.By == nil && p.emit != nil && p.emit.Uses(group) {
			c.problems = append(c.problems, r.Emit.Problem(1, 0, group+" is for groups: set batch.by, or write "+one))
		}
	}
	return p
}

func (c *compiler) compile(e *config.Expr, usage expr.Usage, sources ...string) *expr.Program {
	if e == nil {
		return nil
	}
	program, err := c.env.Compile(e.Text, usage, sources...)
	if err == nil {
		c.checkLookups(e, program)
		if c.advise {
			c.warn(e, program.Warnings())
			c.used.add(program)
		} else {
			c.warn(e, program.CostWarnings())
		}
		return program
	}
	c.problems = append(c.problems, problemsOf(c.cfg, e, sources, err)...)
	return nil
}

// warn notes what may not be meant, or may cost much.
func (c *compiler) warn(e *config.Expr, warnings []expr.Warning) {
	for _, w := range warnings {
		at := e
		if define, ok := c.cfg.Define[w.Define]; ok {
			at = &define
		}
		warning := at.Problem(w.Line, w.Column, w.Message)
		warning.Warning = true
		c.warnings = append(c.warnings, warning)
	}
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

// problemsOf finds the places in the file of what is wrong with an expression of these sources, or with the defines that it uses.
func problemsOf(cfg *config.Config, e *config.Expr, sources []string, err error) (problems config.Problems) {
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
			problems = append(problems, at.Problem(issue.Line, issue.Column, issue.Message+whereOf(failed, e, sources)))
		}
	}
	if len(problems) == 0 {
		problems = append(problems, config.Problem{Path: "define", Message: err.Error()})
	}
	return problems
}

// whereOf says for which source an expression is wrong, if it may be right for another, and which expression uses a define.
func whereOf(failed *expr.CompileError, e *config.Expr, sources []string) string {
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
