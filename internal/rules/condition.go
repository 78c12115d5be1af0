package rules

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// ConditionConfig is what [Conditions] are made of.
type ConditionConfig struct {
	Sources []string
	For     time.Duration // how long it must hold until that is told; 0: it is told at once
	Every   time.Duration // how often it is told again while it holds; 0: never
	// Skip: where it holds for an object that was there before anybody looked, nothing is told,
	// neither that nor that it ended.
	Skip bool
	// Limit says how often Entered is told of each of its keys; nil: always. What it holds back is
	// told when it allows that, if it still holds. Left is told of a key, when its condition holds
	// for none of the objects of which Entered was told, or would have been.
	Limit *Limit
}

// Conditions is what a route with a condition (when) knows: for which objects it holds, since when,
// and what was told of that. It makes of what happens to an object the edges: [event.Entered] and
// [event.Left], which alternate for each object, as told.
//
//	           holds                 for is over
//	(nothing) ───────► pending ─────────────────────► told ──► Entered, and Entered again every
//	    ▲                 │ holds no longer             │
//	    └─────────────────┴─────────────────────────────┴────► Left
//
// With a limit, what would be told waits as suppressed where the limit does not allow it, and Left
// is that of a key of the limit.
//
// It has no lock and no clock: now is that of the caller, and of what has a time to come, the owner
// hears by [timer.Owner]. What is told counts as told when the edge was returned. Edges are new
// deltas of the caller's, who sees to it that none is delivered before what is known with it is on
// disk: else a crash could bring back that it was not told.
//
// Times are told apart as its Wheel does, so that a wall clock that jumps means nothing while the
// router runs. What [Conditions.Dirty] hands over has wall times, which are all there is across a
// restart: what is over by then is late, and nothing takes longer than For from then on.
type Conditions struct {
	cfg   ConditionConfig
	wheel *timer.Wheel
	due   func(*Conditions, *Condition)

	index   index
	counts  [failing + 1]int // by state
	changes changes
	groups  groups // by key of the limit
	held    int    // how often the limit held an edge back
}

// Condition is one object for which the condition holds. It is what a pending `for` costs, so that
// it has no more than it needs.
type Condition struct {
	timer.Node // when For is over, or it is told again

	set *Conditions
	// the cache has it too; an identity only until it is known again after a restart
	object *event.Object
	since  time.Duration // when it began to hold
	// likewise, as the wall clock said then, which is what is told: it never changes
	wall    int64
	began   uint64     // the resourceVersion from which on it does
	version uint64     // the resourceVersion of the object
	next    *Condition // of the same hash
	// its place among those of the same key of the limit; nil: it was not told, or there is no
	// limit
	member *member
	repeat uint32 // how often it was told again
	source uint16 // in Sources
	state  state
	flags  flag
}

// state is what was told of a condition that holds.
type state uint8

const (
	over       state = iota // it holds no longer
	pending                 // nothing, because For is not over
	told                    // that it holds
	skipped                 // nothing: it held before anybody looked
	suppressed              // nothing: it waits until the limit lets it pass
	// it does not hold: whether it does could not be told of the object as it is
	failing
)

// flag is a set of flags.
type flag uint8

const (
	changed flag = 1 << iota // it is in Conditions.changed
	saved                    // it was handed over
	late                     // it was due while the router was down
	byTime                   // time, or a reload, made it hold, rather than a change of the object
	visited                  // since Conditions.Begin
	failed                   // whether it holds could not be told of the object as it is
)

// NewConditions makes conditions that hold for nothing. due is called, without any lock, when the
// time of one has come; its owner then calls [Conditions.Fire] under its lock.
func NewConditions(cfg ConditionConfig, wheel *timer.Wheel, census *Census, due func(*Conditions, *Condition)) *Conditions {
	s := &Conditions{cfg: cfg, wheel: wheel, due: due, index: index{census: census, byHash: map[uint64]*Condition{}}}
	s.groups = groups{wheel: wheel, changes: &s.changes, byKey: map[string]*group{}}
	return s
}

// Due implements timer.Owner.
func (c *Condition) Due(*timer.Node) { c.set.due(c.set, c) }

func (s *Conditions) find(source string, key event.Key) (at int, h uint64, c *Condition) {
	if at = slices.Index(s.cfg.Sources, source); at < 0 {
		return at, 0, nil
	}
	h = s.index.census.hash(source, key)
	return at, h, s.index.find(h, at, key)
}

// Knows reports whether the condition holds for an object, as far as was seen, or failed on it.
func (s *Conditions) Knows(source string, key event.Key) bool {
	_, _, c := s.find(source, key)
	return c != nil
}

// Holds reports whether a condition holds, rather than that it failed on its object.
func (c *Condition) Holds() bool { return c.state != failing && c.state != over }

// Of returns what is known of an object; nil: the condition does not hold for it.
func (s *Conditions) Of(source string, key event.Key) *Condition {
	if _, _, c := s.find(source, key); c != nil && c.state != failing {
		return c
	}
	return nil
}

// Observe takes what has happened to an object and whether the condition holds for it now, and
// appends the edges that this makes to edges. first: the route looks for the first time, see
// [ConditionConfig.Skip]; byTime: nothing happened to the object, but time has gone by, or the
// condition is another one. key is that of the limit, if there is one.
//
// Of an object that was found in a list with another resourceVersion than before nobody knows what
// happened to it meanwhile. If it holds before and after, it has been told stays told, and what is
// pending begins anew.
func (s *Conditions) Observe(d *event.Delta, holds, first bool, key string, now time.Time, edges []Edge) []Edge {
	at, h, c := s.find(d.Source, d.Key())
	if at < 0 {
		return edges
	}
	o := d.Object()
	if c != nil && c.object.UID() != o.UID() && o.UID() != "" { // its end was not seen
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
	if c == nil {
		c = &Condition{set: s, source: uint16(at)} //nolint:gosec // of few sources
		if s.begin(c, h, d, first, now) {
			return s.tell(c, d, key, now, edges)
		}
		return edges
	}
	s.goesOn(c, d, key, now)
	return edges
}

// begin takes up a condition that holds now and did not before. It reports whether that is to be
// told.
func (s *Conditions) begin(c *Condition, h uint64, d *event.Delta, first bool, now time.Time) (tell bool) {
	c.object = d.New
	c.since, c.wall, c.version = s.wheel.In(now), now.UnixNano(), number(d.New.ResourceVersion())
	c.began = c.version
	c.flags |= visited
	if d.Op == event.Sync {
		c.flags |= byTime
	}
	s.index.add(h, c)
	switch {
	case first && s.cfg.Skip:
		s.become(c, skipped)
	case s.cfg.For > 0:
		s.become(c, pending)
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
	default:
		return true
	}
	return false
}

// goesOn notes that a condition holds still.
func (s *Conditions) goesOn(c *Condition, d *event.Delta, key string, now time.Time) {
	version := number(d.New.ResourceVersion())
	gap := d.Transit().Listed && version != c.version || d.Op == event.Added && version != c.version
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
	}
	if c.state == told && c.member == nil && s.cfg.Limit != nil {
		s.groups.join(c, key)
		s.changes.note(c)
	}
}

// end forgets a condition that holds no longer because of d.
func (s *Conditions) end(c *Condition, d *event.Delta, now time.Time, edges []Edge) []Edge {
	if c.state == suppressed && c.member != nil {
		s.cfg.Limit.Suppress(c.member.key, 1, now)
	}
	if tell, several := s.groups.leave(c); tell {
		edge := c.edge(event.Left, now)
		edge.Old, edge.New = d.Old, d.New
		edge.Seen, edge.Stale, edge.Transit().Listed = d.Seen, d.Stale, d.Transit().Listed
		if several { // so that it is not coalesced with the Entered of this object
			edge.Began += "+"
		}
		edges = append(edges, Edge{Delta: edge})
	}
	s.forget(c)
	return edges
}

// tell appends the edge that a condition holds, if the limit lets it pass. d is what made it so;
// nil: time did.
func (s *Conditions) tell(c *Condition, d *event.Delta, key string, now time.Time, edges []Edge) []Edge {
	again := c.state == told
	pass, ok := s.pass(c, key, now)
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
		edge.Old, edge.Seen, edge.Initial, edge.Stale, edge.Transit().Listed = d.Old, d.Seen, d.Initial, d.Stale, d.Transit().Listed
	}
	if pass != nil {
		edge.Suppressed = pass.Suppressed + pass.Waiting
	}
	edge.Late = c.flags&late != 0
	c.flags &^= late
	s.become(c, told)
	return append(edges, Edge{edge, pass})
}

// Doubt says that it cannot be told whether a condition holds for an object. What is pending begins
// anew if it is seen to hold; what was told stays told. It reports whether that is news: not if it
// was said of the object as it is.
func (s *Conditions) Doubt(d *event.Delta) (news bool) {
	at, h, c := s.find(d.Source, d.Key())
	if at < 0 || d.New == nil {
		return true
	}
	version := number(d.New.ResourceVersion())
	if c != nil && (c.state == pending || c.object.UID() != d.New.UID() && c.state == failing) {
		s.forget(c)
		c = nil
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

// ForgetFailures makes it news again what the condition fails on, because it is another one.
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

// Close stops all timers. Nothing is known after it, and nothing says so.
func (s *Conditions) Close() {
	for c := range s.All() {
		s.forget(c)
	}
	s.changes.drop()
}

// Object returns the object that a condition is about.
func (c *Condition) Object() *event.Object { return c.object }

// Source returns where its object is from.
func (c *Condition) Source() string { return c.set.cfg.Sources[c.source] }

// Known reports whether there is more of its object than who it is.
func (c *Condition) Known() bool { return c.object.ResourceVersion() != "" }

// Learn gives a condition that was restored its object, if o is that.
func (c *Condition) Learn(o *event.Object) {
	if o != nil && o.UID() == c.object.UID() && o.Key() == c.object.Key() {
		c.object = o
	}
}

// All returns all conditions, in no order. They are not to be changed meanwhile.
func (s *Conditions) All() iter.Seq[*Condition] {
	return s.index.all
}

// Counts returns for how many objects the condition holds: those that wait for For to be over, and
// the others.
func (s *Conditions) Counts() (waiting, active int) {
	return s.counts[pending], s.counts[told] + s.counts[skipped] + s.counts[suppressed]
}

// become changes the state of a condition.
func (s *Conditions) become(c *Condition, to state) {
	if c.state != over {
		s.counts[c.state]--
	}
	s.counts[to]++
	c.state = to
	s.changes.note(c)
}

// forget forgets a condition.
func (s *Conditions) forget(c *Condition) {
	s.groups.leave(c)
	s.wheel.Stop(&c.Node)
	s.index.remove(s.index.census.hash(c.Source(), c.object.Key()), c)
	s.changes.forget(c)
	s.counts[c.state]--
	c.state = over // set stays: its time may just have come
}

// number makes a number of a resourceVersion. They are numbers; of one that is not, it is a hash.
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
