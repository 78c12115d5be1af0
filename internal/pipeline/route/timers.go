package route

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// timers are the timers of the rules of a route. They implement [condition.Owner].
type timers struct{ route *Route }

// ConditionDue implements [condition.Owner].
func (t timers) ConditionDue(c *rules.Condition) {
	for !t.route.fireCondition(c) {
		continue // the generation or the object has changed
	}
}

// fireCondition enqueues the edge of a condition whose timer has expired. It returns false if the
// generation or the object changed in the meantime. The keys are evaluated without the lock.
func (r *Route) fireCondition(c *rules.Condition) bool {
	r.mu.Lock()
	cfg, d := r.Generation(), r.backlog.rules.Conditions.Due(c, r.now())
	r.backlog.countRules()
	r.mu.Unlock()
	if d == nil || !cfg.Table().Sees(0, d) { // a rescan ends the condition
		return true
	}

	v := cfg.Verdict(background(), d, matched())

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Generation() != cfg {
		return false
	}
	edges, ok := r.backlog.rules.Conditions.Fire(c, d, cfg.DueLimitKey(d, &v), r.now())
	if !ok {
		return false
	}
	r.enqueue(edges, &v)
	return true
}

// HoldDue implements [condition.Owner].
func (t timers) HoldDue(a *rules.DeleteHold) {
	for !t.route.fireHold(a) {
		continue // the generation has changed
	}
}

// fireHold enqueues a delete whose hold has expired. It returns false if the generation changed
// in the meantime. The keys are evaluated without the lock.
func (r *Route) fireHold(a *rules.DeleteHold) bool {
	c := r.Generation()
	v := c.Verdict(background(), a.Delta(), matched())
	exists := c.When.Object != nil && c.When.Object(a.Delta().Source, a.Delta().Key()) != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if c != r.Generation() {
		return false
	}
	if d := r.backlog.rules.Holds.Fire(a, exists, r.now()); d != nil && c.Table().Sees(0, d) {
		r.backlog.append(d, &v)
		r.changed()
	}
	return true
}

// StartTimers lets the timers of the present generation fire, once all changes before the start
// were observed.
func (r *Route) StartTimers() {
	c := r.Generation()
	if r.workers.taking == nil || !c.HasCondition() && c.Hold == 0 {
		return
	}
	r.mu.Lock()
	r.catching = c
	r.mu.Unlock()
	r.workers.run(func() { r.catchUp(c) })
}

// catchUp lets the timers of the rules fire as soon as all changes before the start were observed.
func (r *Route) catchUp(c *Generation) {
	if c.waitCaughtUp() {
		r.mu.Lock()
		expired := r.backlog.rules.CatchUp()
		r.mu.Unlock()
		for _, timer := range expired {
			timer.Due(nil)
		}
	}
	r.mu.Lock()
	if r.catching == c {
		r.catching = nil
	}
	r.mu.Unlock()
	r.env.Progress.report()
}

// waitCaughtUp waits until all changes before the start were observed. It returns false if the
// generation was replaced.
func (c *Generation) waitCaughtUp() bool {
	for _, closed := range []<-chan struct{}{c.When.CaughtUp, c.Ready} {
		if closed == nil {
			continue
		}
		select {
		case <-closed:
		case <-c.current.Done():
			return false
		}
	}
	return true
}

// background returns the context of work that no caller has begun: an evaluation when a timer
// fires, or the removal of dead letters after a write of the checkpoint.
func background() context.Context { return context.Background() } //nolint:forbidigo // see above
