package rules

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// ConditionConfig configures [Conditions].
type ConditionConfig struct {
	Sources []string
	// how long the condition must hold before Entered is reported; 0: reported at once
	For   time.Duration
	Every time.Duration // the interval of reminders while it holds; 0: none
	// Existing: objects that existed before the route first evaluated the condition have reports,
	// too. Otherwise both Entered and Left are suppressed for them.
	Existing bool
	// Limit bounds the Entered reports of a key; nil: no limit. A report that it holds back is made
	// as soon as the limit allows, if the condition still holds. Left is reported once for a key,
	// when the condition holds for no object of the key any more.
	Limit *Limit
	// OnlyEntered: Left is not delivered, so the next Entered has the suppressed count of the key,
	// which Left has otherwise.
	OnlyEntered bool
}

// Conditions is the state of a route with a condition (when): the objects for which the condition
// holds, the time since which it holds, and the reports that were made. It derives the edges
// [event.Entered] and [event.Left] from the changes of an object. The reports of an object
// alternate.
//
//	           holds                 for is over
//	(nothing) ───────► pending ─────────────────────► told ──► Entered, and reminders each every
//	    ▲                 │ holds no longer             │
//	    └─────────────────┴─────────────────────────────┴────► Left
//
// With a limit, a report that the limit holds back is in state suppressed, and Left belongs to the
// key of the limit.
//
// It has no lock and no clock: the caller passes now, and its owner is notified of due times
// through [timer.Owner]. An edge counts as reported once it is returned. The caller delivers an
// edge only after the state that belongs to it is on disk; otherwise a crash could restore a state
// in which the edge was not yet reported, and its end would never be reported.
//
// Intervals are measured with the time of the Wheel, so a jump of the wall clock has no effect
// while the router runs. The records of [Conditions.Dirty] contain wall times, because only those
// survive a restart. An interval that ended before the restart is late, and no remaining interval
// is longer than For.
type Conditions struct {
	cfg ConditionConfig
	// the sources of the configuration, and behind them former ones whose conditions have not ended
	sources []string
	wheel   *timer.Wheel
	due     func(*Conditions, *Condition)

	index   index
	counts  [failing + 1]int // by state
	changes changes
	groups  groups // by key of the limit
	held    int    // the number of edges that the limit held back
	refused int    // the number of observations for which the share had no room

	// Evaluated: all objects were evaluated before. So an object that is new to the route may not
	// be new: a former configuration may have shown it, and its condition may have been reported.
	Evaluated bool
	// Untold is called with each report that is not made, or not yet; nil: it is not called.
	Untold func(Untold)
}

// Condition is one object for which the condition holds. There is one for each pending `for`, so
// its size matters.
type Condition struct {
	timer.Node // expires when For is over, or when a reminder is due

	set *Conditions
	// shared with the cache; after a restart only the identity, until the cache has the object
	object *event.Object
	since  time.Duration // the start of the condition, in the time of the Wheel
	// the same by the wall clock of that moment; it is reported, and never changes
	wall    int64
	began   uint64     // the resourceVersion with which the condition began to hold
	version uint64     // the resourceVersion of the object
	next    *Condition // the next condition of the same hash
	// the place within the group of the limit key; nil: not reported yet, or there is no limit
	member *member
	repeat uint32 // the number of reminders
	source uint16 // the index in Conditions.sources
	state  state
	flags  flag
}

// state is the progress of a condition.
type state uint8

const (
	over       state = iota // it holds no longer
	pending                 // it holds, and For is not over
	reported                // Entered was reported
	skipped                 // it held before the first evaluation, and is never reported
	suppressed              // the limit holds Entered back
	// it does not hold: its evaluation failed for the present object
	failing
)

// flag is a set of flags.
type flag uint8

const (
	changed flag = 1 << iota // it is in Conditions.changed
	saved                    // it has a record in the checkpoint
	late                     // it came due while the router was down
	byTime                   // time or a reload made it hold, not a change of the object
	visited                  // observed since Conditions.Begin
	failed                   // the last evaluation failed
)

// NewConditions returns conditions without objects. due is called without any lock when a timer
// expires; the owner then calls [Conditions.Fire] under its lock. The objects that the conditions
// track use share: without room, the condition does not begin for a further object, and a failed
// evaluation is not recorded.
func NewConditions(cfg ConditionConfig, wheel *timer.Wheel, census *Census, share *Share, due func(*Conditions, *Condition)) *Conditions {
	s := &Conditions{cfg: cfg, sources: cfg.Sources, wheel: wheel, due: due, index: index{census: census, share: share, byHash: map[uint64]*Condition{}}}
	s.groups = groups{wheel: wheel, changes: &s.changes, byKey: map[string]*group{}}
	return s
}

// Due implements timer.Owner.
func (c *Condition) Due(*timer.Node) { c.set.due(c.set, c) }

func (s *Conditions) find(source string, key event.Key) (at int, h uint64, c *Condition) {
	if at = slices.Index(s.sources, source); at < 0 {
		return at, 0, nil
	}
	h = s.index.census.hash(source, key)
	return at, h, s.index.find(h, at, key)
}

// Knows reports whether the condition holds for an object, or its evaluation failed on it.
func (s *Conditions) Knows(source string, key event.Key) bool {
	_, _, c := s.find(source, key)
	return c != nil
}

// Holds reports whether the condition holds. A failed evaluation does not count.
func (c *Condition) Holds() bool { return c.state != failing && c.state != over }

// Of returns the condition of an object; nil: it does not hold.
func (s *Conditions) Of(source string, key event.Key) *Condition {
	if _, _, c := s.find(source, key); c != nil && c.state != failing {
		return c
	}
	return nil
}

// Observe records a change of an object and whether the condition holds now, and appends the
// resulting edges to edges. first: the route evaluates the condition for the first time, see
// [ConditionConfig.Existing]. The operation Sync means that the object has not changed: time has
// passed, or the condition was edited. key is the key of the limit, if there is one.
//
// After a relist the intermediate states of a changed object are unknown. If the condition holds
// before and after, a reported condition stays reported, and a pending one starts its For again.
func (s *Conditions) Observe(d *event.Delta, holds, first bool, key string, now time.Time, edges []Edge) []Edge {
	at, h, c := s.find(d.Source, d.Key())
	if at < 0 {
		return edges
	}
	o := d.Object()
	if c != nil && c.object.UID() != o.UID() && o.UID() != "" { // its end was missed
		edges = s.end(c, &event.Delta{Source: d.Source, Op: event.Deleted, Old: c.object, Stale: true, Seen: d.Seen}, now, edges)
		c = nil
	}
	if c != nil && c.state == failing && holds {
		s.forget(c)
		c = nil
	}
	if d.New == nil || !holds {
		if c == nil {
			return edges
		}
		return s.end(c, d, now, edges)
	}
	if c == nil && s.index.share.Full() {
		s.refused++
		return edges
	}
	if c == nil {
		c = &Condition{set: s, source: uint16(at)} //nolint:gosec // of few sources
		if s.begin(c, h, d, first, now) {
			return s.report(c, d, key, now, edges)
		}
		return edges
	}
	s.update(c, d, key, now)
	return edges
}

// begin starts a condition. It reports whether Entered is due at once.
func (s *Conditions) begin(c *Condition, h uint64, d *event.Delta, first bool, now time.Time) (report bool) {
	c.object = d.New
	c.since, c.wall, c.version = s.wheel.In(now), now.UnixNano(), number(d.New.ResourceVersion())
	c.began = c.version
	c.flags |= visited
	if d.Op == event.Sync || d.Initial && s.Evaluated {
		c.flags |= byTime
	}
	s.index.add(h, c)
	switch {
	case first && !s.cfg.Existing:
		s.become(c, skipped)
		s.untold(c, d, Skipped, false, time.Time{})
	case s.cfg.For > 0:
		s.become(c, pending)
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
		s.untold(c, d, Delayed, false, now.Add(s.cfg.For))
	default:
		return true
	}
	return false
}

// update updates a condition that still holds.
func (s *Conditions) update(c *Condition, d *event.Delta, key string, now time.Time) {
	version := number(d.New.ResourceVersion())
	gap := transit.Of(d).Listed && version != c.version || d.Op == event.Added && version != c.version
	c.object, c.version = d.New, version
	if c.flags&failed != 0 {
		c.flags &^= failed
		s.changes.note(c)
	}
	c.flags |= visited
	if c.state == pending && gap {
		c.since, c.wall, c.began = s.wheel.In(now), now.UnixNano(), version
		c.flags &^= late | byTime
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
		s.changes.note(c)
		s.untold(c, d, Delayed, false, now.Add(s.cfg.For))
	}
	if c.state == reported && c.member == nil && s.cfg.Limit != nil {
		s.groups.join(c, key)
		s.changes.note(c)
	}
}

// end removes a condition that ended with d.
func (s *Conditions) end(c *Condition, d *event.Delta, now time.Time, edges []Edge) []Edge {
	if c.state == suppressed && c.member != nil {
		s.cfg.Limit.Suppress(c.member.key, 1, now)
	}
	of := c.member
	report, several := s.groups.leave(c)
	s.untoldEnd(c, d, report)
	if report {
		edge := c.edge(event.Left, now)
		edge.Old, edge.New = d.Old, d.New
		edge.Seen, edge.Stale, transit.Of(edge).Listed = d.Seen, d.Stale, transit.Of(d).Listed
		if several { // so that it is not coalesced with the Entered of this object
			edge.Began += "+"
		}
		var pass *Pass
		if of != nil && !s.cfg.OnlyEntered {
			if pass = s.cfg.Limit.TakeSuppressed(of.key, now); pass != nil {
				edge.Suppressed = pass.Suppressed
			}
		}
		edges = append(edges, Edge{edge, pass})
	}
	s.forget(c)
	return edges
}

// report appends Entered if the limit allows it. d is the change that made the condition hold; nil:
// a timer expired.
func (s *Conditions) report(c *Condition, d *event.Delta, key string, now time.Time, edges []Edge) []Edge {
	again := c.state == reported
	pass, ok := s.pass(c, d, key, now)
	if (ok || again) && s.cfg.Every > 0 {
		s.wheel.Set(&c.Node, s.wheel.In(now)+s.cfg.Every, c)
		s.changes.note(c)
	}
	if !ok {
		return edges
	}
	if again {
		c.repeat++
	}
	edge := c.edge(event.Entered, now)
	edge.New, edge.Seen = c.object, now
	if d != nil {
		edge.Old, edge.Seen, edge.Initial, edge.Stale, transit.Of(edge).Listed = d.Old, d.Seen, d.Initial, d.Stale, transit.Of(d).Listed
	}
	if pass != nil {
		edge.Suppressed = pass.Suppressed + pass.Waiting
	}
	edge.Late = c.flags&late != 0
	c.flags &^= late
	s.become(c, reported)
	return append(edges, Edge{edge, pass})
}

// Doubt records that the evaluation failed for an object. A pending condition is dropped and starts
// again when it next holds; a reported one stays reported. It returns false if the failure was
// already recorded for this version of the object.
func (s *Conditions) Doubt(d *event.Delta) (news bool) {
	at, h, c := s.find(d.Source, d.Key())
	if at < 0 || d.New == nil {
		return true
	}
	// A condition that was not reported is forgotten, also if the failure is about the next object
	// of the name: nothing is certain about it.
	version := number(d.New.ResourceVersion())
	if c != nil && (c.state == pending || c.object.UID() != d.New.UID() && c.state == failing) {
		s.untoldEnd(c, d, false)
		s.forget(c)
		c = nil
	}
	if c == nil && s.index.share.Full() {
		s.refused++
		return true
	}
	if c == nil {
		c = &Condition{set: s, source: uint16(at), object: d.New} //nolint:gosec // of few sources
		s.index.add(h, c)
		s.become(c, failing)
	}
	news = c.flags&failed == 0 || c.version != version
	c.version = version
	c.flags |= failed | visited
	if news {
		s.changes.note(c)
	}
	return news
}

// ForgetFailures drops the recorded failures, because the expression of the condition has changed.
func (s *Conditions) ForgetFailures() {
	for c := range s.All() {
		switch {
		case c.state == failing:
			s.forget(c)
		case c.flags&failed != 0:
			c.flags &^= failed
			s.changes.note(c)
		}
	}
}

// Close stops all timers and removes all conditions without a trace in [Conditions.Dirty].
func (s *Conditions) Close() {
	for c := range s.All() {
		s.forget(c)
	}
	s.changes.drop()
}

// Object returns the object of a condition.
func (c *Condition) Object() *event.Object { return c.object }

// Source returns the source of its object.
func (c *Condition) Source() string { return c.set.sources[c.source] }

// Known reports whether the object is complete, rather than an identity.
func (c *Condition) Known() bool { return c.object.ResourceVersion() != "" }

// Learn sets the object of a restored condition if o has the same key and uid.
func (c *Condition) Learn(o *event.Object) {
	if o != nil && o.UID() == c.object.UID() && o.Key() == c.object.Key() {
		c.object = o
	}
}

// All yields all conditions, in no order. The set must not change during the iteration.
func (s *Conditions) All() iter.Seq[*Condition] {
	return s.index.all
}

// TakeRefused returns the number of observations since the last call for which the share had no
// room.
func (s *Conditions) TakeRefused() int {
	n := s.refused
	s.refused = 0
	return n
}

// Counts returns the number of objects for which the condition holds: those with a running For, and
// all others.
func (s *Conditions) Counts() (waiting, active int) {
	return s.counts[pending], s.counts[reported] + s.counts[skipped] + s.counts[suppressed]
}

func (s *Conditions) become(c *Condition, to state) {
	if c.state != over {
		s.counts[c.state]--
	}
	s.counts[to]++
	c.state = to
	s.changes.note(c)
}

// forget removes a condition.
func (s *Conditions) forget(c *Condition) {
	s.groups.leave(c)
	s.wheel.Stop(&c.Node)
	s.index.remove(s.index.census.hash(c.Source(), c.object.Key()), c)
	s.changes.forget(c)
	s.counts[c.state]--
	c.state = over // set stays: the timer may be expiring at this moment
}

// number converts a resourceVersion to a number, or hashes one that is not numeric.
func number(version string) uint64 {
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		return n
	}
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, b := range []byte(version) {
		h = (h ^ uint64(b)) * prime
	}
	return h
}
