package route

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// ConditionDue implements [condition.Owner].
func (r *Conditions) ConditionDue(c *rules.Condition) {
	for !r.fireCondition(c) {
		continue // the generation or the object has changed
	}
}

// fireCondition enqueues the edge of a condition whose timer has expired. It returns false if the
// generation or the object changed in the meantime. The keys are evaluated without the lock.
func (r *Conditions) fireCondition(c *rules.Condition) bool {
	r.mu.Lock()
	cfg, d := r.Generation(), r.backlog.Rules.Conditions.Due(c, r.now())
	r.backlog.CountRules()
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
	edges, ok := r.backlog.Rules.Conditions.Fire(c, d, cfg.DueLimitKey(d, &v), r.now())
	if !ok {
		return false
	}
	r.enqueue(edges, &v)
	return true
}

// HoldDue implements [condition.Owner].
func (r *Conditions) HoldDue(a *rules.DeleteHold) {
	for !r.fireHold(a) {
		continue // the generation has changed
	}
}

// fireHold enqueues a delete whose hold has expired. It returns false if the generation changed
// in the meantime. The keys are evaluated without the lock.
func (r *Conditions) fireHold(a *rules.DeleteHold) bool {
	c := r.Generation()
	v := c.Verdict(background(), a.Delta(), matched())
	exists := c.When.Object != nil && c.When.Object(a.Delta().Source, a.Delta().Key()) != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if c != r.Generation() {
		return false
	}
	if d := r.backlog.Rules.Holds.Fire(a, exists, r.now()); d != nil && c.Table().Sees(0, d) {
		r.backlog.Append(d, &v)
		r.changed()
	}
	return true
}

// Begin starts catchUp for the present generation if the route has timers.
func (r *Conditions) Begin() {
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
func (r *Conditions) catchUp(c *Generation) {
	if c.waitCaughtUp() {
		r.mu.Lock()
		expired := r.backlog.Rules.CatchUp()
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
