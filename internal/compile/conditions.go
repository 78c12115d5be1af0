package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// when compiles the condition of a route and checks the related keys.
func (c *compiler) when(r *config.Route, emit *cel.Program) *cel.Program {
	// An upstream route may have a condition.
	if emit != nil && r.When == nil && r.For == 0 && len(r.Upstream) == 0 {
		for _, name := range []string{"since", "late", "repeat"} {
			if emit.Uses(name) {
				c.problems = append(c.problems, r.Emit.Problem(1, 0, name+" needs a condition: set when too, or remove it"))
			}
		}
	}
	when := c.condition(r.When, cel.When, r.From)
	for _, name := range r.From {
		if s := c.cfg.Sources[name]; when != nil && s != nil && s.Cache == config.CacheIdentity {
			c.problems = append(c.problems, r.Node.At("when").Problemf(
				"is evaluated on cached objects, but source %q caches identities only: give it cache: full or cache: metadata", name))
		}
	}
	if when != nil && c.advise && r.Reevaluate == 0 && len(r.Watches) == 0 && len(when.Sources()) > 0 {
		c.warnf(r.Node.At("when").Problemf("looks up objects of other sources, but is evaluated only when its own object changes: set watches " +
			"for the dependent objects, or reevaluate"))
	}
	if when != nil && when.Uses("now") && r.Reevaluate == 0 {
		c.problems = append(c.problems, r.Node.At("when").Problemf(
			"depends on now, but is evaluated only when its object changes: set reevaluate, as in reevaluate: 1h"))
	}
	return when
}

// condition compiles a filter or a condition. It returns nil if there is none or it has a mistake.
func (c *compiler) condition(f *config.Filter, usage cel.Usage, from []string) *cel.Program {
	if f == nil {
		return nil
	}
	if f.By == nil {
		return c.compile(&f.Expr, usage, from...)
	}
	programs := make(map[string]*cel.Program)
	for _, source := range from {
		if e := f.By[source]; e != nil && e.Text != "" {
			if p := c.compile(e, usage, source); p != nil {
				programs[source] = p
			}
		}
	}
	if len(programs) != len(from) || len(programs) == 0 {
		return nil // reported
	}
	return cel.BySource(programs)
}

// ConditionVersion identifies a condition by its texts and by the objects that the route sees:
// equal versions hold for the same objects. sources are those of the plan.
func (route *Route) ConditionVersion(sources map[string]Source) string {
	var texts []string
	for _, source := range route.From {
		texts = append(texts, source, route.When.For(source).Text)
		for i := range sources[source].Specs {
			texts = append(texts, sources[source].Specs[i].ID())
		}
	}
	parts := []any{texts, route.Defines()}
	if scope := route.Scope(); scope != nil {
		parts = append(parts, scope.Namespaces)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return "" // strings can always be marshalled
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// requeue compiles the expressions of watches, by their source.
func (c *compiler) requeue(r *config.Route) map[string]*cel.Program {
	programs := make(map[string]*cel.Program)
	for _, source := range slices.Sorted(maps.Keys(r.Watches)) {
		e := r.Watches[source]
		if c.cfg.Sources[source] == nil || e.Text == "" || len(r.From) == 0 {
			continue // reported already
		}
		program, err := c.exprs.compile(c.env, c.effort, e.Text, cel.Objects, []string{source}, r.From...)
		if err != nil {
			failed(c, &e, []string{source}, err)
			continue
		}
		c.checkLookups(&e, program)
		c.checkExcluded(&e, program, []string{source})
		if c.advise {
			c.used.add(program)
			c.used.sources[source] = true
			c.warn(&e, program.Warnings())
		} else {
			c.warn(&e, program.CostWarnings())
		}
		programs[source] = program
	}
	return programs
}

// adviseGroup warns of groups (batch.by) that are not what their author counts on.
func adviseGroup(c *compiler, r *Route) {
	if r.Batch.By == nil {
		return
	}
	if r.When != nil && r.Limit != nil {
		c.warnf(r.Node.At("limit").Problemf("lets the reports of a key through one after another, before batch.by collects them, so a group " +
			"lacks those that wait: remove limit, because a group is one event already, or remove batch.by"))
	}
	if r.EmitProgram == nil {
		return
	}
	compared, counts := cel.GroupSizes(r.EmitProgram)
	for _, s := range compared {
		if s.Least > int64(r.Batch.Size) {
			c.warnf(r.Emit.Problem(s.Line, s.Column, fmt.Sprintf(
				"a group never has %d objects, because batch.size is %d and a full group is delivered at once: set batch: {size: %d}", s.Least, r.Batch.Size, s.Least)))
		}
	}
	if counts && len(r.Upstream) == 0 && slices.Contains(r.Ops, event.Deleted.String()) && len(r.Ops) > 1 {
		c.warnf(r.Node.At("ops").Problemf("has deleted, so the group counts deleted objects beside the others: remove it, as in " +
			"ops: [added, updated]; if they count, add # check: ok"))
	}
}
