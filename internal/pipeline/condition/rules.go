package condition

import (
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
)

// Rules are the rules about time of one route. The lock of the route guards them.
type Rules struct {
	Conditions Conditions
	Holds      Holds
	Limit      Limit
}

// New makes the rules of a new route.
func New(env Env, cfg Config, now time.Time) *Rules {
	r := &Rules{}
	r.Limit.configure(cfg.Limit, now)
	r.Holds.env = &env
	r.Holds.configure(cfg, now)
	r.Conditions.env, r.Conditions.cfg = &env, cfg
	if cfg.Condition {
		r.Conditions.open(r.Limit.keys)
		r.Conditions.rescanned = !cfg.LooksUp && !cfg.Known
	}
	return r
}

// Configure changes the configuration, and keeps what the new one can use. The caller calls
// [Rules.CatchUp] once more when the router has observed what happened before.
func (r *Rules) Configure(cfg Config, now time.Time) {
	r.Limit.configure(cfg.Limit, now)
	r.Holds.configure(cfg, now)
	r.Conditions.configure(cfg, r.Limit.keys, now)
}

// CatchUp lets timers act from now on, because everything that happened before the start was
// observed. The caller calls Due on the timers that it returns, without the lock.
func (r *Rules) CatchUp() (expired []timer.Owner) {
	return append(r.Holds.catchUp(), r.Conditions.catchUp()...)
}

// Return gives a pass back to the limit, because nothing came of its delta, which would have
// reported so many as suppressed.
func (r *Rules) Return(pass *rules.Pass, suppressed int, now time.Time) {
	if !r.Limit.On() {
		return
	}
	r.Limit.keys.Return(pass, suppressed, now)
	r.Conditions.rouse(pass)
}

// Restore restores the state from the records of the checkpoint, of which others than those of
// Dirty are ignored. It is called before anything else, and only for a route that has records: one
// without any is new. The error is about records that cannot be read; the others are restored.
func (r *Rules) Restore(records []checkpoint.RuleRecord, now time.Time) error {
	return errors.Join(r.Limit.restore(records, now), r.Holds.restore(records, now), r.Conditions.restore(records, r.Limit.keys, now))
}

// Dirty appends the changes since the last call.
func (r *Rules) Dirty(records []checkpoint.RuleRecord, now time.Time) []checkpoint.RuleRecord {
	records = r.Holds.dirty(records, now)
	records = r.Conditions.dirty(records, now)
	return r.Limit.dirty(records, now)
}

// Saved says that everything that Dirty returned is on disk.
func (r *Rules) Saved() { r.Conditions.saved() }

// Close stops all timers and forgets everything, of which Dirty says nothing.
func (r *Rules) Close() {
	r.Conditions.close()
	r.Holds.close()
}
