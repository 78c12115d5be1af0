package condition

import (
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
)

// Rules are the rules about time of one route. The lock of the route guards them.
type Rules struct {
	Conditions Conditions
	Holds      Holds
	Limit      Limit
}

// New returns the rules of a new route with these settings.
func New(env Env, cfg *spec.Settings, now time.Time) *Rules {
	r := &Rules{}
	r.Limit.share = env.Keys
	r.Limit.configure(cfg.Limit.Rate(), now)
	r.Holds.env = &env
	r.Holds.configure(cfg, now)
	r.Conditions.env, r.Conditions.cfg = &env, cfg
	if cfg.HasCondition() {
		r.Conditions.open(r.Limit.keys)
		r.Conditions.rescanned = !cfg.LooksUp() && !cfg.Known
	}
	return r
}

// Configure changes the configuration, and keeps the state that the new one can use. The caller
// calls [Rules.CatchUp] again once all earlier changes are observed.
func (r *Rules) Configure(cfg *spec.Settings, now time.Time) {
	r.Limit.configure(cfg.Limit.Rate(), now)
	r.Holds.configure(cfg, now)
	r.Conditions.configure(cfg, r.Limit.keys, now)
}

// CatchUp lets timers fire from now on, because all changes before the start were observed. The
// caller calls Due on the returned timers, without the lock.
func (r *Rules) CatchUp() (expired []timer.Owner) {
	return append(r.Holds.catchUp(), r.Conditions.catchUp()...)
}

// Return returns a pass to the limit, because its delta ended without an event, together with the
// suppressed count that the delta would have reported.
func (r *Rules) Return(pass *rules.Pass, suppressed int, now time.Time) {
	if !r.Limit.On() {
		return
	}
	r.Limit.keys.Return(pass, suppressed, now)
	r.Conditions.rouse(pass)
}

// Restore restores the state from the records of the checkpoint; records of other kinds are
// ignored. It is called before any other method, and only for a route with records: a route without
// any is new. The error describes damaged records; the others are restored.
func (r *Rules) Restore(records []checkpoint.RuleRecord, now time.Time) error {
	return errors.Join(r.Limit.restore(records, now), r.Holds.restore(records, now), r.Conditions.restore(records, r.Limit.keys, now))
}

// Dirty appends the changes since the last call.
func (r *Rules) Dirty(records []checkpoint.RuleRecord, now time.Time) []checkpoint.RuleRecord {
	records = r.Holds.dirty(records, now)
	records = r.Conditions.dirty(records, now)
	return r.Limit.dirty(records, now)
}

// Saved marks everything that Dirty returned as on disk.
func (r *Rules) Saved() { r.Conditions.saved() }

// Close stops all timers, drops all state without a trace in Dirty, and returns it to the shares.
func (r *Rules) Close() {
	r.Conditions.close()
	r.Holds.close()
	r.Limit.close()
}
