package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// The rules about time of a route: deltas, rescans and timers change their state, which the backlog
// has, and the rules enqueue edges.

// conditionVerdict converts a match of the table to a verdict about a condition. ok is false if it
// changes nothing.
func (r *Route) conditionVerdict(ctx context.Context, d *event.Delta, m filters.Match) (v verdict, ok bool) {
	c := r.Generation()
	switch m.Verdict {
	case filters.Unready: // a rescan follows when it is ready
		return v, false
	case filters.Filtered:
		c.Count().Filtered.Inc()
		return r.Leaves(ctx, d)
	case filters.Failed, filters.Deferred:
		v = c.Verdict(ctx, d, m)
	case filters.Matched:
		v = c.Verdict(ctx, d, m)
		v.Holds = v.Err == nil
	}
	v.Condition = true
	return v, true
}

// Leaves returns the verdict that the condition no longer holds for the object of d. ok is false if
// it did not hold.
func (r *Route) Leaves(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
	if !r.Generation().IsReady() || !r.tracks(d) {
		return v, false
	}
	return r.Generation().Leaves(ctx, d), true
}

// tracks reports whether the route's condition tracks the object of d.
func (r *Route) tracks(d *event.Delta) bool {
	if !r.env.Census.MayContain(d.Source, d.Key()) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backlog.rules.Conditions.Knows(d.Source, d.Key())
}

// observe passes the result for d to the condition, and enqueues the edges. It is called under the
// cut lock of a source.
func (r *Route) observe(d *event.Delta, v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog
	if v.Deferred {
		b.rules.Conditions.Miss(d)
		r.misses.wake()
		r.changed()
		return
	}
	if v.Err != nil {
		if b.rules.Conditions.Doubt(d) {
			b.append(d, v)
		} else { // the failure is already reported
			r.Generation().Count().Errors(spec.ErrorKind(v.Err)).Inc()
		}
		b.countRules()
		r.changed()
		return
	}
	var few [2]rules.Edge
	seen := condition.Observation{Holds: v.Holds, Rescan: v.Rescan, Remind: v.Remind, LimitKey: v.LimitKey}
	r.enqueue(b.rules.Conditions.Observe(few[:0], d, seen, r.now()), v)
}

// enqueue enqueues edges. It is called under the lock under which the conditions returned them.
func (r *Route) enqueue(edges []rules.Edge, v *verdict) {
	for _, edge := range edges {
		if transit.Of(edge).Durable != nil {
			r.env.Soon()
		}
		r.backlog.enqueue(edge.Delta, v, edge.Pass)
	}
	r.backlog.countRules()
	r.changed()
}

// Returns returns the verdict that the object of d exists again, which cancels its delete hold. ok
// is false if the route holds no deletes.
func (r *Route) Returns(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
	r.mu.Lock()
	held := r.backlog.rules.Holds.Len()
	r.mu.Unlock()
	if held == 0 {
		return v, false
	}
	v = r.Generation().Verdict(ctx, d, matched())
	v.Cancels, v.Err = true, nil
	return v, true
}

// cancelHold drops the held deletes of an object that exists again, and of its key. It is called
// under the cut lock of a source.
func (r *Route) cancelHold(d *event.Delta, v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.Generation()
	n := r.backlog.rules.Holds.Cancel(d.Source, d.Key(), c.HoldKey(d, v.Lane))
	c.Count().Filtered.Add(float64(n))
}

// Holdings returns at most limit objects after another one for which the condition holds, or whose
// deletes are held, see pipeline.Active.
func (r *Route) Holdings(after condition.Holding, limit int) []condition.Holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backlog.rules.Page(after, limit, r.now())
}

// HoldingOf returns the holding of one object. ok is false if there is none.
func (r *Route) HoldingOf(source string, key event.Key) (h condition.Holding, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backlog.rules.Of(source, key, r.now())
}

// RestoreRules restores the rules, a pause and the counts from records of Route.Dirty. Damaged
// records are skipped and reported by the error.
func (r *Route) RestoreRules(records []checkpoint.RuleRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.Generation()
	records, failed := r.counts.restore(records)
	if failed != nil {
		failed = fmt.Errorf("route %q: %w", c.Name, failed)
	}
	if len(records) == 0 { // the rules are those of a new route
		return failed
	}
	if r.paused.restore(records); r.paused.on() {
		c.Log().Warn("route paused since before the restart; router resume ROUTE continues it, once the cause is fixed",
			slog.String("reason", r.paused.reason))
	}
	err := r.backlog.rules.Restore(records, r.now())
	r.backlog.countRules()
	if err != nil {
		return errors.Join(failed, fmt.Errorf("route %q: the state of its rules (when, for, limit) cannot be restored: %w", c.Name, err))
	}
	return failed
}

// Rescanned reports whether the condition was evaluated for all objects since it last changed.
func (r *Route) Rescanned() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backlog.rules.Conditions.Rescanned()
}

// Rescan evaluates the condition of a route for all objects, see pipeline.Rescan.
type Rescan struct {
	route      *Route
	generation *Generation // a rescan that began with another one changes nothing
}

// BeginRescan begins a rescan.
func (r *Route) BeginRescan() *Rescan {
	s := &Rescan{r, r.Generation()}
	lanes := s.lanes((*rules.Condition).Former)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Generation() == s.generation {
		s.enqueue(r.backlog.rules.Conditions.BeginRescan(r.now()), lanes)
	}
	return s
}

// Evaluate evaluates a delta of an object. ok is false if it changes nothing.
func (s *Rescan) Evaluate(ctx context.Context, d *event.Delta) (v spec.Verdict, ok bool) {
	if s.route.Generation() != s.generation {
		return v, false
	}
	v, ok = s.route.Evaluate(ctx, d)
	v.Rescan = true
	return v, ok
}

// End ends a rescan. It is called only if all objects were evaluated. complete reports whether all
// objects of a source were listed: then the condition ends for objects that no longer exist.
func (s *Rescan) End(complete func(source string) bool) {
	r := s.route
	lanes := s.lanes(func(known *rules.Condition) bool { return !known.Visited() && complete(known.Source()) })
	r.mu.Lock()
	if r.Generation() != s.generation {
		r.mu.Unlock()
		return
	}
	edges, expired := r.backlog.rules.Conditions.EndRescan(complete, r.now())
	s.enqueue(edges, lanes)
	r.mu.Unlock()
	for _, timer := range expired {
		timer.Due(nil)
	}
}

// enqueue enqueues edges under the lock.
func (s *Rescan) enqueue(edges []rules.Edge, lanes map[queue.Key]queue.Key) {
	r := s.route
	for _, edge := range edges {
		v := verdict{Lane: queue.ObjectKey(edge.Delta)}
		if lane, ok := lanes[v.Lane]; ok {
			v.Lane = lane
		}
		r.enqueue([]rules.Edge{edge}, &v)
	}
	r.backlog.countRules()
}

// lanes returns the lanes of the objects whose conditions are about to end, by object. The keys are
// evaluated without the lock.
func (s *Rescan) lanes(ends func(known *rules.Condition) bool) map[queue.Key]queue.Key {
	r := s.route
	r.mu.Lock()
	deletes := r.backlog.rules.Conditions.Deletes(ends)
	r.mu.Unlock()
	lanes := make(map[queue.Key]queue.Key, len(deletes))
	for _, d := range deletes {
		lanes[queue.ObjectKey(d)] = r.Generation().Leaves(background(), d).Lane
	}
	return lanes
}

// Misses returns the objects for which the condition was not evaluated.
func (r *Route) Misses() *Misses { return &r.misses }

// Misses are the objects for which the condition of a route was not evaluated, because the filter
// was deferred. It is safe for concurrent use.
type Misses struct {
	route *Route
	woken chan struct{}
}

// Woken returns a channel that has a value when there may be missed objects.
func (m *Misses) Woken() <-chan struct{} { return m.woken }

func (m *Misses) wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// Next returns a missed object. ok is false if there is none.
func (m *Misses) Next() (next condition.MissedObject, ok bool) {
	m.route.mu.Lock()
	defer m.route.mu.Unlock()
	return m.route.backlog.rules.Conditions.NextMissed()
}

// Done is called after the cached state of a missed object was admitted to the route, or the cache
// did not have it. It returns false if the route is not ready, so that the object is missed still.
func (m *Misses) Done(missed condition.MissedObject) bool {
	m.route.mu.Lock()
	defer m.route.mu.Unlock()
	if !m.route.Generation().IsReady() {
		return false
	}
	m.route.backlog.rules.Conditions.Done(missed)
	return true
}

// Caught lets the timers fire that expired while their objects were missed.
func (m *Misses) Caught() {
	m.route.mu.Lock()
	expired := m.route.backlog.rules.Conditions.Release()
	m.route.mu.Unlock()
	for _, timer := range expired {
		timer.Due(nil)
	}
}

// Turn waits until the route may evaluate a missed object: one route of an owner does at a time. It
// returns false when ctx is done, else the caller calls done.
func (m *Misses) Turn(ctx context.Context) (done func(), ok bool) {
	turn := m.route.Generation().Allowance.Rescanning()
	return turn.Give, turn.Take(ctx)
}
