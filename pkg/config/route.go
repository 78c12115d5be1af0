package config

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The ops of a route with a condition.
const (
	opEntered = "entered"
	opLeft    = "left"
)

// checkTime checks the rules about time. It sets the default ops of a condition.
func (r *Route) checkTime(n Node) (problems Problems) {
	if r.When == nil {
		return r.checkNoCondition(n)
	}
	if n.At("ops").IsZero() {
		r.Ops = []string{opEntered, opLeft}
	}
	if n.At("existing").IsZero() {
		r.Existing = ExistingDeliver
	}
	for i, item := range n.At("ops").Items() {
		if i < len(r.Ops) && r.Ops[i] != "" && r.Ops[i] != opEntered && r.Ops[i] != opLeft {
			problems = append(problems, item.Problemf("a route with when reports that its condition holds or ended, not that an object is %s: write entered or left, or use filter instead of when", r.Ops[i]))
		}
	}
	if !n.At("filter").IsZero() {
		problems = append(problems, n.At("filter").Problemf("a route has either when or filter: join them with &&"))
	}
	if r.Overflow == OverflowDropOldest {
		problems = append(problems, n.At("overflow").Problemf("could lose the report that a condition holds or ended: use coalesce or block"))
	}
	if ops := n.At("ops"); !ops.IsZero() && !slices.Contains(r.Ops, opEntered) {
		for _, key := range []string{"every", "limit"} {
			if at := n.At(key); !at.IsZero() {
				problems = append(problems, at.Problemf("affects entered, which ops does not contain: add entered, or remove this key"))
			}
		}
	}
	return problems
}

// checkAge checks that the route does not wait longer than maxAge.
func (r *Route) checkAge(n Node) (problems Problems) {
	if r.MaxAge == 0 {
		return nil
	}
	if r.MaxAge <= r.Debounce.Quiet {
		problems = append(problems, n.At("maxAge").Problemf("is not longer than the quiet period, so every delta would be too old: raise it"))
	}
	if r.Batch.By != nil && r.Debounce.Quiet == 0 && r.MaxAge <= r.Batch.Wait {
		problems = append(problems, n.At("maxAge").Problemf("is not longer than batch.wait, so deltas of a group could be too old: raise it"))
	}
	return problems
}

// checkNoCondition checks a route without when.
func (r *Route) checkNoCondition(n Node) (problems Problems) {
	downstream := n.At("from").IsZero()
	if downstream && n.At("ops").IsZero() {
		r.Ops = []string{"added", "updated", "deleted", "deselected", "sync", opEntered, opLeft}
	}
	for i, item := range n.At("ops").Items() {
		if i < len(r.Ops) && !downstream && (r.Ops[i] == opEntered || r.Ops[i] == opLeft) {
			problems = append(problems, item.Problemf("%s needs a condition: set when too", r.Ops[i]))
		}
	}
	ends := func(op string) bool { return op == "deleted" || op == "deselected" }
	if length := n.At("for"); !length.IsZero() && !downstream && slices.ContainsFunc(r.Ops, func(op string) bool { return !ends(op) }) {
		problems = append(problems, length.Problemf("is the duration of a condition or of an absence: set when too, or ops: [deleted]"))
	}
	if watches := n.At("watches"); r.For > 0 && !watches.IsZero() {
		problems = append(problems, watches.Problemf("repeats existing objects, but with for the route reports deleted objects: remove one"))
	}
	for _, key := range []string{"every", "reevaluate"} {
		if at := n.At(key); !at.IsZero() {
			problems = append(problems, at.Problemf("needs a condition: set when too, or remove it"))
		}
	}
	return problems
}

// Validate checks the rules that tags cannot express.
func (r *Route) Validate(n Node) (problems Problems) {
	if r.Name != "" && !nameSyntax.MatchString(r.Name) {
		problems = append(problems, n.At("name").Problemf("%q is not a valid name: %s", r.Name, nameRule))
	}
	if r.ID != "" && !nameSyntax.MatchString(r.ID) {
		problems = append(problems, n.At("id").Problemf("%q is not a valid id: %s", r.ID, strings.Replace(nameRule, "a name", "an id", 1)))
	}
	r.ID = cmp.Or(r.ID, r.Name)
	if r.Emit != nil && r.Handler != "" {
		problems = append(problems, n.At("emit").Problemf("a route has either emit or handler: remove one"))
	}
	if r.Retry.Max < r.Retry.Backoff {
		problems = append(problems, n.At("retry").At("max").Problemf("%s is less than backoff, %s: raise it", r.Retry.Max, r.Retry.Backoff))
	}
	if !n.At("from").IsZero() { // otherwise the sources are not known yet
		problems = append(problems, r.Filter.Check(n.At("filter"), r.From)...)
		problems = append(problems, r.When.Check(n.At("when"), r.From)...)
	}
	problems = append(problems, r.checkWith(n)...)
	problems = append(problems, r.checkTime(n)...)
	problems = append(problems, r.checkAge(n)...)
	problems = append(problems, r.checkShape(n)...)
	problems = append(problems, checkOnce(n.At("from"), r.From)...)
	return append(problems, checkOnce(n.At("ops"), r.Ops)...)
}

// maxWith is the maximum number of the values in with.
const maxWith = 16

// checkWith checks that a handler or a receiver can see the values of with.
func (r *Route) checkWith(n Node) (problems Problems) {
	with := n.At("with")
	for _, e := range with.entries() {
		if !celIdentifier.MatchString(e.key) {
			key := e.value
			key.at = e.at
			problems = append(problems, key.Problemf("%q is not a valid name: use letters, digits and _, and no digit first", e.key))
		}
	}
	switch {
	case len(r.With) > maxWith:
		problems = append(problems, with.Problemf("has %d values, more than %d: join some of them in a map", len(r.With), maxWith))
	case len(r.With) > 0 && r.Emit != nil:
		problems = append(problems, with.Problemf("is for a handler: emit can contain the expressions itself"))
	case len(r.With) > 0 && r.Handler == "" && n.At("from").IsZero():
		problems = append(problems, with.Problemf("has no effect: the route passes on the events of other routes as they are: add a handler, or remove it"))
	}
	return problems
}

// Validate checks the rules that tags cannot express.
func (d *DebounceForm) Validate(n Node) (problems Problems) {
	if d.Max > 0 && d.Max < d.Quiet {
		problems = append(problems, n.At("max").Problemf("%s is less than quiet, %s: raise it", d.Max, d.Quiet))
	}
	return problems
}

// maxWait is the maximum wait of a batch that is not a group.
const maxWait = time.Minute

// checkShape checks the rules about batches, groups and debounce.
func (r *Route) checkShape(n Node) (problems Problems) {
	batch := n.At("batch")
	if wait := batch.At("wait"); r.Batch.By == nil && r.Batch.Wait > maxWait {
		problems = append(problems, wait.Problemf("must be at most %s, not %s: a longer time is for groups, see batch.by", "1m", wait.yaml.Value))
	}
	if r.When != nil && r.Debounce.Quiet > 0 {
		problems = append(problems, n.At("debounce").Problemf("delays changes, and has no effect on a condition: use for instead"))
	}
	by := batch.At("by")
	if r.Batch.By == nil {
		return problems
	}
	if r.Key != nil {
		problems = append(problems, n.At("key").Problemf("a route has either key or batch.by, which keeps the deltas of a group in order: remove one"))
	}
	if r.Emit == nil && r.Handler == "" {
		problems = append(problems, by.Problemf("groups deltas for emit or a handler, and the route has neither: add emit, or remove it"))
	}
	if batch.At("wait").IsZero() && r.Debounce.Quiet == 0 {
		problems = append(problems, by.Problemf("needs the time for which a group is collected: set batch.wait or debounce"))
	}
	return problems
}
