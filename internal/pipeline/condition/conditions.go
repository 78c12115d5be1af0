package condition

import (
	"iter"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Conditions are the conditions of one route: for which objects the expression of when holds, since
// when, and what was reported.
type Conditions struct {
	env *Env
	cfg Config

	states    *rules.Conditions // nil: there is no condition, and there was none
	caughtUp  bool              // timers may act
	parked    []timer.Owner     // due before timers could act
	rescanned bool              // all objects were evaluated with this condition
	// no condition was ever evaluated for all objects, so that what holds is not new
	first bool
	noted bool // Dirty has returned the value of rescanned
	// closed when the reports since the last Dirty are saved; nil: there are none
	unsaved chan struct{}
	saving  []chan struct{} // those that Dirty has returned
}

// Observation is the result of evaluating the condition for a delta.
type Observation struct {
	Holds    bool
	Rescan   bool   // all objects are evaluated
	Remind   bool   // report once more what holds still
	LimitKey string // empty: there is no limit
}

// Knows reports whether the condition holds for an object, or failed on it, as far as was observed.
func (c *Conditions) Knows(source string, key event.Key) bool {
	return c.states != nil && c.states.Knows(source, key)
}

// Rescanned reports whether all objects were evaluated with this condition.
func (c *Conditions) Rescanned() bool { return c.states == nil || !c.cfg.Condition || c.rescanned }

// Observe takes the result for a delta, and appends the edges to enqueue. With Env.Durable an edge
// that is no reminder has a Durable that is closed when the state is saved: no edge is delivered
// before, else a crash could forget that its end has to be reported.
func (c *Conditions) Observe(edges []rules.Edge, d *event.Delta, o Observation, now time.Time) []rules.Edge {
	if c.states == nil {
		return edges
	}
	first := d.Initial || o.Rescan && c.first && !c.rescanned
	n := len(edges)
	edges = c.states.Observe(d, o.Holds, first, o.LimitKey, now, edges)
	if o.Remind && len(edges) == n {
		if edge, ok := c.states.Remind(d, o.LimitKey, now); ok {
			edges = append(edges, edge)
		}
	}
	return c.wanted(edges)
}

// Doubt says that the condition failed on a delta. It reports whether that is to be dead-lettered:
// not if it was for this version of the object.
func (c *Conditions) Doubt(d *event.Delta) bool { return c.states == nil || c.states.Doubt(d) }

// wanted returns the edges that the route wants, which are not to be delivered before they are
// saved.
func (c *Conditions) wanted(edges []rules.Edge) []rules.Edge {
	edges = slices.DeleteFunc(edges, func(edge rules.Edge) bool { return !slices.Contains(c.cfg.Ops, edge.Op) })
	for _, edge := range edges {
		if c.env.Durable && edge.Repeat == 0 {
			if c.unsaved == nil {
				c.unsaved = make(chan struct{})
			}
			edge.Transit().Durable = c.unsaved
		}
	}
	return edges
}

// saved says that everything that dirty returned is on disk.
func (c *Conditions) saved() {
	for _, saved := range c.saving {
		close(saved)
	}
	c.saving = nil
}

// Due returns the delta to evaluate the keys for when the timer of a condition has expired; nil:
// nothing is to be reported, by now.
func (c *Conditions) Due(due *rules.Condition, now time.Time) *event.Delta {
	switch {
	case c.states == nil: // the route was removed
		return nil
	case !c.caughtUp || !c.rescanned:
		c.parked = append(c.parked, due)
		return nil
	case !c.states.IsDue(due, now) || !c.learn(due, now):
		return nil
	}
	return &event.Delta{Source: due.Source(), Op: event.Entered, New: due.Object(), Seen: now}
}

// Fire returns the edges to enqueue for a condition, of which d is the delta that Due returned. ok
// is false if the condition has another object by now: then the caller begins anew with Due.
func (c *Conditions) Fire(due *rules.Condition, d *event.Delta, limitKey string, now time.Time) (edges []rules.Edge, ok bool) {
	if c.states == nil || due.Object() != d.New {
		return nil, false
	}
	if edge, fires := c.states.Fire(due, limitKey, now); fires {
		edges = c.wanted(append(edges, edge))
	}
	return edges, true
}

// learn makes sure that a restored condition has its object rather than an identity. It returns
// false if the object is not in the cache, which may be ahead of what was observed.
func (c *Conditions) learn(due *rules.Condition, now time.Time) bool {
	if due.Known() || c.cfg.Object == nil {
		return true
	}
	due.Learn(c.cfg.Object(due.Source(), due.Object().Key()))
	if !due.Known() {
		c.states.Missing(due, now)
	}
	return due.Known()
}

// catchUp lets timers act from now on. It returns the timers that expired before.
func (c *Conditions) catchUp() []timer.Owner {
	if c.states == nil || c.caughtUp {
		return nil
	}
	if c.cfg.Object != nil {
		for known := range c.states.All() {
			if !known.Known() {
				known.Learn(c.cfg.Object(known.Source(), known.Object().Key()))
			}
		}
	}
	c.caughtUp = true
	return c.release()
}

// release returns the timers that expired before timers could act, if they can now.
func (c *Conditions) release() (parked []timer.Owner) {
	if c.caughtUp && c.rescanned {
		parked, c.parked = c.parked, nil
	}
	return parked
}

// BeginRescan is called before all objects are evaluated once more.
func (c *Conditions) BeginRescan() {
	if c.states != nil {
		c.states.Begin()
	}
}

// Unvisited returns a delete for each object that EndRescan would end the condition of. complete
// reports whether all objects of a source were evaluated.
func (c *Conditions) Unvisited(complete func(source string) bool) (deletes []*event.Delta) {
	if c.states == nil {
		return nil
	}
	for known := range c.states.All() {
		if !known.Visited() && complete(known.Source()) {
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
	edges = c.wanted(c.states.End(complete, now, nil))
	if !c.rescanned {
		c.rescanned, c.noted, c.first = true, false, false
	}
	return edges, c.release()
}

// rouse lets another condition of a key be reported in place of a pass that was given back.
func (c *Conditions) rouse(pass *rules.Pass) {
	if c.states != nil {
		c.states.Rouse(pass)
	}
}

// open begins with no conditions.
func (c *Conditions) open(limit *rules.Limit) {
	due := func(_ *rules.Conditions, due *rules.Condition) { c.env.Owner.ConditionDue(due) }
	c.states = rules.NewConditions(c.cfg.rules(limit), c.env.Wheel, c.env.Census, due)
	c.first = true
}

// configure changes the configuration. A condition of another Version keeps what was reported and
// has to be evaluated for all objects.
func (c *Conditions) configure(cfg Config, limit *rules.Limit, now time.Time) {
	old := c.cfg
	c.cfg = cfg
	switch {
	case c.states == nil && !cfg.Condition:
		return
	case c.states == nil: // it is new, so all objects are evaluated, as ones that were there before
		c.open(limit)
		return
	}
	c.states.Configure(cfg.rules(limit), now)
	switch {
	case !cfg.Condition: // dirty says that all is forgotten
		c.rescanned, c.first, c.noted = false, true, false
	case cfg.Version != old.Version:
		c.first = c.first && !c.rescanned
		c.rescanned, c.noted = false, false
		c.states.ForgetFailures()
	}
}

func (c *Conditions) close() {
	if c.states != nil {
		c.states.Close()
		c.states = nil
	}
}

// active yields the objects for which the condition holds, in no order.
func (c *Conditions) active(now time.Time) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		if c.states == nil || !c.cfg.Condition {
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
	if c.states == nil || !c.cfg.Condition {
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
