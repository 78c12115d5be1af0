package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Domain restricts the deltas that a filter is evaluated for.
type Domain struct {
	Ops        []event.Op
	Namespaces []string // of the objects; nil: any
}

// Never is a conjunct that makes a filter false for every delta.
type Never struct {
	Conjunct

	Reason string // with the remedy
}

// Never reports whether the filter is false, or has no value, for all deltas of a domain: one of
// its conjuncts is a constant, or requires a value that is not in the domain, or two conjuncts
// contradict each other. False: it may be true.
func (x *Explainer) Never(ctx context.Context, d Domain) (Never, bool) {
	seen := make(map[string]equality.Equality) // by field
	texts := make(map[string]string)           // of their conjuncts
	for i := range x.terms {
		t := &x.terms[i]
		if reason := x.never(ctx, t, d); reason != "" {
			return Never{t.Conjunct, reason}, true
		}
		equalities, rest := t.program.Conjuncts()
		if rest || len(equalities) != 1 {
			continue
		}
		e := equalities[0]
		before, ok := seen[e.Field.ID]
		if !ok {
			seen[e.Field.ID], texts[e.Field.ID] = e, syntax.OneLine(t.Text)
			continue
		}
		both := slices.DeleteFunc(slices.Clone(before.Values), func(v string) bool { return !e.Holds(v) })
		if len(both) == 0 {
			return Never{t.Conjunct, fmt.Sprintf("it contradicts %s; if either will do, join them with ||", texts[e.Field.ID])}, true
		}
		before.Values = both
		seen[e.Field.ID] = before
	}
	return Never{}, false
}

// never returns the reason why a conjunct is always false; empty: it may be true.
func (x *Explainer) never(ctx context.Context, t *term, d Domain) string {
	if t.program.IsConstant() {
		if holds, err := t.program.Match(ctx, cel.Input{Delta: anyDelta()}); err == nil && !holds {
			return "it is always false; remove it, or the route"
		}
		return ""
	}
	if t.program.IsCallOf(syntax.FuncChanged) && len(d.Ops) > 0 && !slices.ContainsFunc(d.Ops, func(op event.Op) bool { return op == event.Added || op == event.Updated }) {
		return fmt.Sprintf("changed() is always false for %s; remove it, or add updated to on", opNames(d.Ops))
	}
	equalities, rest := t.program.Conjuncts()
	if rest || len(equalities) != 1 {
		return ""
	}
	e := &equalities[0]
	holds := func(values ...string) bool { return slices.ContainsFunc(values, e.Holds) }
	switch f := &e.Field; {
	case f.IsOp() && len(d.Ops) > 0 && !holds(strings.Split(opNames(d.Ops), ", ")...):
		return fmt.Sprintf("op is only %s; add %s to on", opNames(d.Ops), strings.Join(e.Values, " or "))
	case f.IsSource() && !holds(x.source):
		return fmt.Sprintf("the source is %s; add %s to from", x.source, strings.Join(e.Values, " or "))
	case f.IsNamespace() && d.Namespaces != nil && !holds(d.Namespaces...):
		return fmt.Sprintf("source %q watches only the namespaces %s; add %s to them",
			x.source, strings.Join(d.Namespaces, ", "), strings.Join(e.Values, " or "))
	}
	return ""
}

// anyDelta returns a delta for an expression that uses no delta.
func anyDelta() *event.Delta {
	object, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"any","uid":"any","resourceVersion":"1"}}`)
	if err != nil {
		return nil
	}
	return &event.Delta{Op: event.Added, New: object}
}

func opNames(ops []event.Op) string {
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.String()
	}
	return strings.Join(names, ", ")
}
