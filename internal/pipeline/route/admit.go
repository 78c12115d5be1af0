package route

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

type verdict = spec.Verdict

// matched is a match for deltas whose filter need not be evaluated.
func matched() filters.Match { return filters.Match{Verdict: filters.Matched} }

// Consider converts the result m of the route's filter for d to a verdict. ok is false if the route
// does not want d.
func (r *Route) Consider(ctx context.Context, d *event.Delta, m filters.Match) (v spec.Verdict, ok bool) {
	c := r.Generation()
	if m.Verdict == filters.Deferred {
		r.deferral.note(r)
	}
	switch {
	case c.HasCondition():
		return r.conditionVerdict(ctx, d, m)
	case m.Verdict == filters.Filtered:
		c.Count().Filtered.Inc()
		return v, false
	}
	return c.Verdict(ctx, d, m), true
}

// Existing evaluates a delta of an object that existed before the route. ok is false if the route
// does not want it.
func (r *Route) Existing(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
	c := r.Generation()
	if c.HasCondition() {
		if c.Known || !c.IsReady() {
			return v, false
		}
		v, ok = r.Consider(ctx, d, c.Table().Evaluate(ctx, 0, d))
		return v, ok && v.Err == nil
	}
	if !c.Existing || c.Known {
		return v, false
	}
	matches := c.Table().Match(ctx, d, nil)
	if len(matches) == 0 { // otherwise there is one: the table is of this route only
		return v, false
	}
	return r.Consider(ctx, d, matches[0])
}

// Evaluate evaluates d regardless of the ops of the route: only its filter decides. ok is false if
// the route does not want d.
func (r *Route) Evaluate(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
	c := r.Generation()
	if !c.Table().Ready(0) && c.Table().Sees(0, d) {
		return r.Consider(ctx, d, filters.Match{Verdict: filters.Unready})
	}
	return r.Consider(ctx, d, c.Table().Evaluate(ctx, 0, d))
}

// Commit applies a verdict:
//   - Condition: the state of the condition changes, and its edges become pending.
//   - Cancels: held deletes of the object are dropped.
//   - Otherwise: the delta becomes pending, or a delete is held.
//
// It takes no longer than some map accesses.
func (r *Route) Commit(d *event.Delta, v *spec.Verdict) {
	switch {
	case v.Condition:
		r.observe(d, v)
	case v.Cancels:
		r.cancelHold(d, v)
	default:
		r.pend(d, v)
	}
}

// deferral is when a filter of the route was deferred for the last time, see [filters.Deferred]. It
// is safe for concurrent use.
type deferral struct {
	last atomic.Int64 // in nanoseconds of Unix time; 0: never
}

// deferralLasts is how long a route counts as deferred after the last filter.
const deferralLasts = time.Minute

func (d *deferral) lasts(now time.Time) bool {
	last := d.last.Load()
	return last != 0 && now.Sub(time.Unix(0, last)) < deferralLasts
}

// note counts and logs a deferred filter of a route.
func (d *deferral) note(r *Route) {
	c, now := r.Generation(), r.now()
	c.Count().Errors("deferred").Inc()
	d.last.Store(now.UnixNano())
	if team := c.Allowance.Name; r.env.Complaints.May("deferred\x00"+team, now) {
		c.Log().Warn("the filters and keys of an include or namespace take more CPU than a source may spend on them: workers of its routes evaluate them, and conditions see the newest state of an object only; begin a filter with an equality, such as object.metadata.name ==, or look at smaller parts of the object",
			slog.String("of", team))
	}
}
