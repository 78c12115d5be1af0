package rules

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// ConditionConfig is what [Conditions] are made of.
type ConditionConfig struct {
	Sources []string
	For     time.Duration // how long it must hold until that is told; 0: it is told at once
	Every   time.Duration // how often it is told again while it holds; 0: never
	// Skip: where it holds for an object that was there before anybody looked, nothing is told, neither that nor that it ended.
	Skip bool
}

// Conditions is what a route with a condition (when) knows: for which objects it holds, since when, and what was told of that. It makes of
// what happens to an object the edges that the route owes: [event.Entered] and [event.Left], which alternate for each object, as told.
//
//	           holds                 for is over
//	(nothing) ───────► pending ─────────────────────► told ──► Entered, and Entered again every
//	    ▲                 │ holds no longer             │
//	    └─────────────────┴─────────────────────────────┴────► Left
//
// It has no lock and no clock: now is that of the caller, and of what has a time to come, the owner hears by [timer.Owner]. What is told counts
// as told when the edge was returned. Edges are new deltas of the caller's, who sees to it that none is delivered before what is known with
// it is on disk: else a crash could bring back that it was not told.
//
// Times are told apart as its Wheel does, so that a wall clock that jumps means nothing while the router runs. What [Conditions.Dirty] hands
// over has wall times, which are all there is across a restart: what is over by then is late, and nothing takes longer than For from
// then on.
type Conditions struct {
	cfg   ConditionConfig
	wheel *timer.Wheel
	due   func(*Conditions, *Condition)

	census  *Census
	all     map[uint64]*Condition // by a hash of source, namespace and name: a key of its own would double the memory
	counts  [suppressed + 1]int   // by state
	changed []*Condition          // since they were handed over; some may be gone by now
	gone    []string              // the keys of those that were handed over and are gone
	clock   wallClock
}

// Condition is one object for which the condition holds. It is what a pending `for` costs, so that it has no more than it needs.
type Condition struct {
	timer.Node // when For is over, or it is told again

	set     *Conditions
	object  *event.Object // the cache has it too; an identity only until it is known again after a restart
	since   time.Duration // when it began to hold
	began   uint64        // the resourceVersion from which on it does
	version uint64        // the resourceVersion of the object
	next    *Condition    // of the same hash
	repeat  uint32        // how often it was told again
	source  uint16        // in Sources
	state   state
	flags   flag
}

// state is what was told of a condition that holds.
type state uint8

const (
	over       state = iota // it holds no longer
	pending                 // nothing, because For is not over
	told                    // that it holds
	skipped                 // nothing: it held before anybody looked
	suppressed              // nothing: a limit did not let it pass
)

// flag is a set of flags.
type flag uint8

const (
	changed flag = 1 << iota // it is in Conditions.changed
	saved                    // it was handed over
	late                     // it was due while the router was down
	byTime                   // time, or a reload, made it hold, rather than a change of the object
	visited                  // since Conditions.Begin
)

// NewConditions makes conditions that hold for nothing. due is called, without any lock, when the time of one has come; its owner then calls
// [Conditions.Fire] under its lock.
func NewConditions(cfg ConditionConfig, wheel *timer.Wheel, census *Census, due func(*Conditions, *Condition)) *Conditions {
	return &Conditions{cfg: cfg, wheel: wheel, census: census, due: due, all: make(map[uint64]*Condition)}
}

// Due implements timer.Owner.
func (c *Condition) Due(*timer.Node) { c.set.due(c.set, c) }

func (s *Conditions) find(source string, key event.Key) (at int, h uint64, c *Condition) {
	if at = slices.Index(s.cfg.Sources, source); at < 0 {
		return at, 0, nil
	}
	h = s.census.hash(source, key)
	for c = s.all[h]; c != nil && (int(c.source) != at || c.object.Key() != key); c = c.next {
		continue
	}
	return at, h, c
}

// Knows reports whether the condition holds for an object, as far as was seen.
func (s *Conditions) Knows(source string, key event.Key) bool { return s.Of(source, key) != nil }

// Of returns what is known of an object; nil: the condition does not hold for it.
func (s *Conditions) Of(source string, key event.Key) *Condition {
	_, _, c := s.find(source, key)
	return c
}

// Observe takes what has happened to an object and whether the condition holds for it now, and appends the edges that this makes to edges.
// first: the route looks for the first time, see [ConditionConfig.Skip]; byTime: nothing happened to the object, but time has gone by, or
// the condition is another one.
//
// Of an object that was found in a list with another resourceVersion than before nobody knows what happened to it meanwhile. If it holds
// before and after, it has been told stays told, and what is pending begins anew.
func (s *Conditions) Observe(d *event.Delta, holds, first bool, now time.Time, edges []*event.Delta) []*event.Delta {
	at, h, c := s.find(d.Source, d.Key())
	if at < 0 {
		return edges
	}
	o := d.Object()
	if c != nil && c.object.UID() != o.UID() && o.UID() != "" { // its end was not seen
		edges = s.end(c, &event.Delta{Source: d.Source, Op: event.Deleted, Old: c.object, Stale: true, Seen: d.Seen}, now, edges)
		c = nil
	}
	if d.New == nil || !holds {
		if c == nil {
			return edges
		}
		return s.end(c, d, now, edges)
	}
	if c == nil {
		return s.begin(&Condition{set: s, source: uint16(at)}, h, d, first, now, edges) //nolint:gosec // of few sources
	}
	s.goesOn(c, d, now)
	return edges
}

// begin takes up a condition that holds now and did not before.
func (s *Conditions) begin(c *Condition, h uint64, d *event.Delta, first bool, now time.Time, edges []*event.Delta) []*event.Delta {
	c.object = d.New
	c.since, c.version = s.wheel.In(now), number(d.New.ResourceVersion())
	c.began = c.version
	c.flags |= visited
	if d.Op == event.Sync {
		c.flags |= byTime
	}
	s.add(c, h)
	switch {
	case first && s.cfg.Skip:
		s.become(c, skipped)
	case s.cfg.For > 0:
		s.become(c, pending)
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
	default:
		return append(edges, s.tell(c, d, now))
	}
	return edges
}

func (s *Conditions) add(c *Condition, h uint64) {
	c.next = s.all[h]
	s.all[h] = c
	s.census.place(h).Add(1)
}

// goesOn notes that a condition holds still.
func (s *Conditions) goesOn(c *Condition, d *event.Delta, now time.Time) {
	version := number(d.New.ResourceVersion())
	gap := d.Listed && version != c.version || d.Op == event.Added && version != c.version
	c.object, c.version = d.New, version
	c.flags |= visited
	if c.state == pending && gap {
		c.since, c.began = s.wheel.In(now), version
		c.flags &^= late | byTime
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
		s.note(c)
	}
}

// end forgets a condition that holds no longer because of d.
func (s *Conditions) end(c *Condition, d *event.Delta, now time.Time, edges []*event.Delta) []*event.Delta {
	if c.state == told {
		edge := s.edge(c, event.Left, now)
		edge.Old, edge.New = d.Old, d.New
		edge.Seen, edge.Stale, edge.Listed = d.Seen, d.Stale, d.Listed
		edges = append(edges, edge)
	}
	s.forget(c)
	return edges
}

// tell makes the edge that a condition holds. d is what made it so; nil: time did.
func (s *Conditions) tell(c *Condition, d *event.Delta, now time.Time) *event.Delta {
	edge := s.edge(c, event.Entered, now)
	edge.New, edge.Seen = c.object, now
	if d != nil {
		edge.Old, edge.Seen, edge.Initial, edge.Stale, edge.Listed = d.Old, d.Seen, d.Initial, d.Stale, d.Listed
	}
	edge.Late = c.flags&late != 0
	c.flags &^= late
	s.become(c, told)
	if s.cfg.Every > 0 {
		s.wheel.Set(&c.Node, s.wheel.In(now)+s.cfg.Every, c)
	}
	return edge
}

func (s *Conditions) edge(c *Condition, op event.Op, now time.Time) *event.Delta {
	since := s.wall(c.since, now)
	edge := &event.Delta{Source: s.cfg.Sources[c.source], Op: op, Since: since, Began: strconv.FormatUint(c.began, 10)}
	if c.flags&byTime != 0 {
		edge.Began += "@" + strconv.FormatInt(since.UnixNano(), 36)
	}
	if op == event.Entered {
		edge.Repeat = int(c.repeat)
	}
	return edge
}

// wall makes a wall time of a time of the Wheel.
func (s *Conditions) wall(at time.Duration, now time.Time) time.Time {
	return now.Round(0).Add(at - s.wheel.In(now))
}

// Fire tells what is due of a condition whose owner has heard that it is; nil: it is not, by now. It counts as seen when it was due, so that
// what came due while the router was down is as old as it is.
func (s *Conditions) Fire(c *Condition, now time.Time) *event.Delta {
	if !s.IsDue(c, now) {
		return nil
	}
	if c.state == told {
		c.repeat++
	}
	due := now.Add(c.At() - s.wheel.In(now))
	edge := s.tell(c, nil, now)
	edge.Seen = due
	return edge
}

// Suppress says that an edge that was made just now is not told to anybody. If it is that the condition holds, and that was not told
// before, nothing is told of its end either.
func (s *Conditions) Suppress(edge *event.Delta) {
	if _, _, c := s.find(edge.Source, edge.Key()); c != nil && c.state == told && edge.Op == event.Entered && edge.Repeat == 0 {
		s.become(c, suppressed)
	}
}

// Doubt says that it cannot be told whether a condition holds for an object. What is pending begins anew if it is seen to hold; what was told
// stays told.
func (s *Conditions) Doubt(d *event.Delta) {
	if _, _, c := s.find(d.Source, d.Key()); c != nil && c.state == pending {
		s.forget(c)
	}
}

// Remind tells once more what was told of an object; nil: nothing was.
func (s *Conditions) Remind(d *event.Delta, now time.Time) *event.Delta {
	_, _, c := s.find(d.Source, d.Key())
	if c == nil || c.state != told {
		return nil
	}
	c.repeat++
	return s.tell(c, nil, now)
}

// Missing says that the object of a restored condition is not in the cache when its time has come, though its end was not observed: that may be
// on its way, or it was forgotten with its source. What is pending is forgotten, as there is nothing to tell of it. What was told stays told
// until its end comes.
func (s *Conditions) Missing(c *Condition, now time.Time) {
	switch {
	case c.state == pending:
		s.forget(c)
	case c.state != over && s.cfg.Every > 0:
		s.wheel.Set(&c.Node, s.wheel.In(now)+s.cfg.Every, c)
		s.note(c)
	}
}

// Close stops all timers. Nothing is known after it, and nothing says so.
func (s *Conditions) Close() {
	for c := range s.All() {
		s.forget(c)
	}
	s.gone, s.changed = nil, nil
}

// IsDue reports whether [Conditions.Fire] would tell anything of a condition.
func (s *Conditions) IsDue(c *Condition, now time.Time) bool {
	return c.At() <= s.wheel.In(now) && (c.state == pending || (c.state == told || c.state == suppressed) && s.cfg.Every > 0)
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
	return func(yield func(*Condition) bool) {
		for _, c := range s.all {
			for c != nil {
				next := c.next // c may be forgotten
				if !yield(c) {
					return
				}
				c = next
			}
		}
	}
}

// Counts returns for how many objects the condition holds: those that wait for For to be over, and the others.
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
	s.note(c)
}

// note says that a condition is not, or not any more, as it was handed over.
func (s *Conditions) note(c *Condition) {
	if c.flags&changed == 0 {
		c.flags |= changed
		s.changed = append(s.changed, c)
	}
}

// forget forgets a condition.
func (s *Conditions) forget(c *Condition) {
	s.wheel.Stop(&c.Node)
	h := s.census.hash(c.Source(), c.object.Key())
	s.census.place(h).Add(-1)
	if first := s.all[h]; first != c {
		before := first
		for before.next != c {
			before = before.next
		}
		before.next = c.next
	} else if c.next != nil {
		s.all[h] = c.next
	} else {
		delete(s.all, h)
	}
	if c.flags&saved != 0 {
		s.gone = append(s.gone, c.recordKey())
	}
	s.counts[c.state]--
	c.state, c.next = over, nil // set stays: its time may just have come
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
