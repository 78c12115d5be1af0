package condition

import (
	"iter"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Conditions are the conditions of one route: the objects for which the expression of when holds,
// the time since which it holds, and the reports that were made.
type Conditions struct {
	env *Env
	cfg *spec.Settings

	states    *rules.Conditions // nil: there is no condition, and there was none
	caughtUp  bool              // timers may fire
	parked    []timer.Owner     // expired before timers could fire
	rescanned bool              // all objects were evaluated with this condition
	// no condition was ever evaluated for all objects, so objects for which it holds existed before
	first  bool
	noted  bool // Dirty has returned the value of rescanned
	missed missed
	// closed when the reports since the last Dirty are saved; nil: there are none
	unpersisted chan struct{}
	inFlight    []chan struct{} // the channels of reports that Dirty has returned
}

// Observation is the result of evaluating the condition for a delta.
type Observation struct {
	Holds    bool
	Rescan   bool   // all objects are evaluated
	Remind   bool   // repeat the report of a condition that still holds
	LimitKey string // empty: there is no limit
}

// Knows reports whether the condition holds for an object, or its evaluation failed on it.
func (c *Conditions) Knows(source string, key event.Key) bool {
	return c.states != nil && c.states.Knows(source, key)
}

// Rescanned reports whether all objects were evaluated with this condition.
func (c *Conditions) Rescanned() bool { return c.states == nil || !c.cfg.HasCondition() || c.rescanned }

// Observe processes the result for a delta, and appends the edges to enqueue. With Env.Durable an
// edge that is no reminder has a Durable channel that is closed when the state is saved. The edge
// is delivered only then; otherwise a crash could lose the state, and its end would never be
// reported.
func (c *Conditions) Observe(edges []rules.Edge, d *event.Delta, o Observation, now time.Time) []rules.Edge {
	if c.states == nil {
		return edges
	}
	c.evaluated(subjectOf(d))
	first := d.Initial || o.Rescan && c.first && !c.rescanned
	n := len(edges)
	c.states.Evaluated = !c.first
	edges = c.states.Observe(d, o.Holds, first, o.LimitKey, now, edges)
	if o.Remind && len(edges) == n {
		if edge, ok := c.states.Remind(d, o.LimitKey, now); ok {
			edges = append(edges, edge)
		}
	}
	return c.wanted(edges)
}

// Doubt records that the condition failed on a delta. It reports whether the delta becomes a dead
// letter: only once for each version of an object.
func (c *Conditions) Doubt(d *event.Delta) bool {
	c.evaluated(subjectOf(d))
	return c.states == nil || c.states.Doubt(d)
}

// wanted returns the edges that the route wants, and sets their Durable channels.
func (c *Conditions) wanted(edges []rules.Edge) []rules.Edge {
	edges = slices.DeleteFunc(edges, func(edge rules.Edge) bool { return !slices.Contains(c.cfg.Ops, edge.Op) })
	for _, edge := range edges {
		if c.env.Durable && edge.Repeat == 0 {
			if c.unpersisted == nil {
				c.unpersisted = make(chan struct{})
			}
			transit.Of(edge).Durable = c.unpersisted
		}
	}
	return edges
}

// saved marks everything that dirty returned as on disk.
func (c *Conditions) saved() {
	for _, saved := range c.inFlight {
		close(saved)
	}
	c.inFlight = nil
}

// Due returns the delta whose keys must be evaluated after the timer of a condition has expired;
// nil: no report is due any more.
func (c *Conditions) Due(due *rules.Condition, now time.Time) *event.Delta {
	switch {
	case c.states == nil: // the route was removed
		return nil
	case !c.caughtUp || !c.rescanned || c.isMissed(due.Source(), due.Object().Key()):
		c.parked = append(c.parked, due)
		return nil
	case !c.states.IsDue(due, now) || !c.learn(due, now):
		return nil
	}
	return &event.Delta{Source: due.Source(), Op: event.Entered, New: due.Object(), Seen: now}
}

// Fire returns the edges to enqueue for a condition; d is the delta that Due returned. ok is false
// if the object of the condition has changed since: the caller calls Due again.
func (c *Conditions) Fire(due *rules.Condition, d *event.Delta, limitKey string, now time.Time) (edges []rules.Edge, ok bool) {
	if c.states == nil || due.Object() != d.New {
		return nil, false
	}
	if edge, fires := c.states.Fire(due, limitKey, now); fires {
		edges = c.wanted(append(edges, edge))
	}
	return edges, true
}

// learn replaces the identity of a restored condition by its cached object. It returns false if the
// object is not in the cache, which may be ahead of the observed deltas.
func (c *Conditions) learn(due *rules.Condition, now time.Time) bool {
	if due.Known() || c.cfg.When.Object == nil {
		return true
	}
	due.Learn(c.cfg.When.Object(due.Source(), due.Object().Key()))
	if !due.Known() {
		c.states.Missing(due, now)
	}
	return due.Known()
}

// catchUp lets timers fire from now on. It returns the timers that expired before.
func (c *Conditions) catchUp() []timer.Owner {
	if c.states == nil || c.caughtUp {
		return nil
	}
	if c.cfg.When.Object != nil {
		for known := range c.states.All() {
			if !known.Known() {
				known.Learn(c.cfg.When.Object(known.Source(), known.Object().Key()))
			}
		}
	}
	c.caughtUp = true
	return c.Release()
}

// Release returns the timers that expired before they could fire, if they may now. The caller calls
// Due on them without the lock.
func (c *Conditions) Release() (parked []timer.Owner) {
	if c.caughtUp && c.rescanned {
		parked, c.parked = c.parked, nil
	}
	return parked
}

// BeginRescan is called before all objects are evaluated again. It ends the conditions of sources
// that are no longer configured, and returns the edges to enqueue: a renamed source ends before it
// begins.
func (c *Conditions) BeginRescan(now time.Time) (edges []rules.Edge) {
	if c.states == nil {
		return nil
	}
	edges = c.wanted(c.states.End((*rules.Condition).Former, now, nil))
	c.states.Begin()
	c.missed.more = false
	return edges
}

// Deletes returns a delete for each object whose condition BeginRescan or EndRescan would end.
func (c *Conditions) Deletes(ends func(known *rules.Condition) bool) (deletes []*event.Delta) {
	if c.states == nil {
		return nil
	}
	for known := range c.states.All() {
		if ends(known) {
			deletes = append(deletes, &event.Delta{Source: known.Source(), Op: event.Deleted, Old: known.Object(), Stale: true})
		}
	}
	return deletes
}

// EndRescan ends the conditions of objects that were not evaluated since BeginRescan. It returns
// the edges to enqueue, and expired timers, on which the caller calls Due without the lock.
func (c *Conditions) EndRescan(complete func(source string) bool, now time.Time) (edges []rules.Edge, expired []timer.Owner) {
	if c.states == nil {
		return nil, nil
	}
	edges = c.wanted(c.states.End(func(known *rules.Condition) bool { return !known.Visited() && complete(known.Source()) }, now, nil))
	if !c.rescanned && !c.missed.more {
		c.rescanned, c.noted, c.first = true, false, false
	}
	return edges, c.Release()
}

// rouse lets another condition of a key be reported in place of a returned pass.
func (c *Conditions) rouse(pass *rules.Pass) {
	if c.states != nil {
		c.states.Rouse(pass)
	}
}

// open starts without conditions.
func (c *Conditions) open(limit *rules.Limit) {
	due := func(_ *rules.Conditions, due *rules.Condition) { c.env.Owner.ConditionDue(due) }
	c.states = rules.NewConditions(c.settings(limit), c.env.Wheel, c.env.Census, c.env.Objects, due)
	c.states.Untold = c.env.Untold
	c.first = true
}

// configure changes the configuration. If the Version changes, reported conditions are kept, and
// all objects must be evaluated again.
func (c *Conditions) configure(cfg *spec.Settings, limit *rules.Limit, now time.Time) {
	old := c.cfg
	c.cfg = cfg
	switch {
	case c.states == nil && !cfg.HasCondition():
		return
	case c.states == nil: // it is new, so all objects are evaluated, as existing ones
		c.open(limit)
		return
	}
	c.states.Configure(c.settings(limit), now)
	switch {
	case !cfg.HasCondition(): // dirty returns the removal of all records
		c.rescanned, c.first, c.noted = false, true, false
		c.missed.forget()
	case cfg.When.Version != old.When.Version:
		c.first = c.first && !c.rescanned
		c.rescanned, c.noted = false, false
		c.missed.forget()
		c.states.ForgetFailures()
	}
}

func (c *Conditions) close() {
	if c.states != nil {
		c.states.Close()
		c.states = nil
		c.missed.forget()
	}
}

// active yields the objects for which the condition holds, in no order.
func (c *Conditions) active(now time.Time) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		if c.states == nil || !c.cfg.HasCondition() {
			return
		}
		for known := range c.states.All() {
			if known.Holds() && !yield(c.describe(known, now)) {
				return
			}
		}
	}
}

// of returns the holding of an object.
func (c *Conditions) of(source string, key event.Key, now time.Time) (h Holding, ok bool) {
	if c.states == nil || !c.cfg.HasCondition() {
		return h, false
	}
	known := c.states.Of(source, key)
	if known == nil {
		return h, false
	}
	return c.describe(known, now), true
}

func (c *Conditions) describe(known *rules.Condition, now time.Time) Holding {
	s := known.Describe(now)
	return Holding{
		Source: known.Source(), Key: known.Object().Key(), UID: known.Object().UID(),
		Since: s.Since, Due: s.Due, State: s.State, Repeat: s.Repeat,
	}
}
