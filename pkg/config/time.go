package config

import "slices"

// The ops of a route with a condition.
const (
	OnEntered = "entered"
	OnLeft    = "left"
)

// checkTime checks the rules about time, and fills in what a condition has for a default.
func (r *Route) checkTime(n Node) (problems Problems) {
	if r.When == nil {
		return r.checkNoCondition(n)
	}
	if n.At("on").IsZero() {
		r.On = []string{OnEntered, OnLeft}
	}
	for i, item := range n.At("on").Items() {
		if i < len(r.On) && r.On[i] != "" && r.On[i] != OnEntered && r.On[i] != OnLeft {
			problems = append(problems, item.Problemf("a route with when tells that its condition holds or ends, not that an object is %s: write entered or left, or use filter instead of when", r.On[i]))
		}
	}
	if !n.At("filter").IsZero() {
		problems = append(problems, n.At("filter").Problemf("a route has either when or filter: join them with &&"))
	}
	if r.Overflow == OverflowDropOldest {
		problems = append(problems, n.At("overflow").Problemf("would lose that a condition holds, or that it ended, alone: use fold or block"))
	}
	if on := n.At("on"); !on.IsZero() && !slices.Contains(r.On, OnEntered) {
		for _, key := range []string{"every", "limit"} {
			if at := n.At(key); !at.IsZero() {
				problems = append(problems, at.Problemf("is about entered, which on does not have: add it, or remove this"))
			}
		}
	}
	return problems
}

// checkAge checks that not everything is too old when the route has waited for it.
func (r *Route) checkAge(n Node) (problems Problems) {
	if r.MaxAge == 0 {
		return nil
	}
	if r.MaxAge <= r.Debounce.Quiet {
		problems = append(problems, n.At("maxAge").Problemf("is over before the quiet period is: everything would be too old; raise it"))
	}
	if r.Batch.By != nil && r.Debounce.Quiet == 0 && r.MaxAge <= r.Batch.Wait {
		problems = append(problems, n.At("maxAge").Problemf("is over before batch.wait is: a group whose last delta comes early would be too old; raise it"))
	}
	return problems
}

// checkNoCondition checks a route without when.
func (r *Route) checkNoCondition(n Node) (problems Problems) {
	fed := n.At("from").IsZero()
	if fed && n.At("on").IsZero() {
		r.On = []string{"added", "updated", "deleted", "deselected", "sync", OnEntered, OnLeft}
	}
	for i, item := range n.At("on").Items() {
		if i < len(r.On) && !fed && (r.On[i] == OnEntered || r.On[i] == OnLeft) {
			problems = append(problems, item.Problemf("%s is about a condition: set when too", r.On[i]))
		}
	}
	ends := func(op string) bool { return op == "deleted" || op == "deselected" }
	if length := n.At("for"); !length.IsZero() && !fed && slices.ContainsFunc(r.On, func(op string) bool { return !ends(op) }) {
		problems = append(problems, length.Problemf("says how long something lasts: set when too, or on: [deleted]"))
	}
	if requeue := n.At("requeue"); r.For > 0 && !requeue.IsZero() {
		problems = append(problems, requeue.Problemf("puts through what is there, and with for the route waits for what is gone: remove one"))
	}
	for _, key := range []string{"every", "check"} {
		if at := n.At(key); !at.IsZero() {
			problems = append(problems, at.Problemf("is about a condition: set when too, or remove it"))
		}
	}
	return problems
}
