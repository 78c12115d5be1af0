package rules

import (
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Fire returns the report that is due for a condition whose timer has expired. ok is false if no
// report is due any more. The report counts as seen at its due time, so a report that came due
// while the router was down shows its real age; a report that the limit held back counts as seen
// now. key is the key of the limit.
func (s *Conditions) Fire(c *Condition, key string, now time.Time) (edge Edge, ok bool) {
	if !s.IsDue(c, now) {
		return edge, false
	}
	due := now
	if c.state != suppressed {
		due = withWall(now.Add(c.At()-s.wheel.In(now)), c.onClock(now).Add(c.At()-c.since))
	}
	var few [1]Edge
	edges := s.report(c, nil, key, now, few[:0])
	if len(edges) == 0 {
		return edge, false
	}
	edges[0].Seen = due
	return edges[0], true
}

// Remind repeats the Entered report of an object; ok is false if there was none.
func (s *Conditions) Remind(d *event.Delta, key string, now time.Time) (edge Edge, ok bool) {
	_, _, c := s.find(d.Source, d.Key())
	if c == nil || c.state != reported {
		return edge, false
	}
	edges := s.report(c, nil, key, now, nil)
	if len(edges) == 0 {
		return edge, false
	}
	return edges[0], true
}

// Missing handles a timer that expired while the object of a restored condition is not in the
// cache. Its end was not observed: either the deletion is still to come, or the source has dropped
// the object. A pending condition is dropped, because there is no object to report. A reported one
// stays until its end is observed.
func (s *Conditions) Missing(c *Condition, now time.Time) {
	switch {
	case c.state == pending:
		s.untoldEnd(c, &event.Delta{Source: c.Source(), Op: event.Deleted, Old: c.object, Seen: now}, false)
		s.forget(c)
	case c.state == suppressed:
		s.groups.postpone(c, now)
	case c.state != over && s.cfg.Every > 0:
		s.wheel.Set(&c.Node, s.wheel.In(now)+s.cfg.Every, c)
		s.changes.note(c)
	}
}

// IsDue reports whether [Conditions.Fire] would return a report.
func (s *Conditions) IsDue(c *Condition, now time.Time) bool {
	return c.awaits() && c.At() <= s.wheel.In(now)
}

// awaits reports whether a report follows when the timer of a condition expires.
func (c *Condition) awaits() bool {
	switch c.state {
	case pending:
		return true
	case reported:
		return c.set.cfg.Every > 0
	case suppressed:
		return c.member == nil || c.member.head == c
	case over, skipped, failing:
	}
	return false
}

// wallTime converts a time of the Wheel to the wall clock of now.
func (c *Condition) wallTime(at time.Duration, now time.Time) time.Time {
	return now.Round(0).Add(at - c.set.wheel.In(now))
}

// edge returns a new delta with an operation.
func (c *Condition) edge(op event.Op, now time.Time) *event.Delta {
	since := c.start(now)
	edge := &event.Delta{Source: c.Source(), Op: op, Since: since, Began: strconv.FormatUint(c.began, 10)}
	if c.flags&byTime != 0 {
		edge.Began += "@" + strconv.FormatInt(since.UnixNano(), 36)
	}
	if op == event.Entered {
		edge.Repeat = int(c.repeat)
	}
	return edge
}

// start returns the start of the condition as it is shown in all edges. now only provides the
// location.
func (c *Condition) start(now time.Time) time.Time { return time.Unix(0, c.wall).In(now.Location()) }

// onClock returns the start of the condition by the wall clock of now. It differs from start if the
// wall clock has jumped.
func (c *Condition) onClock(now time.Time) time.Time {
	return afterJump(c.start(now), c.wallTime(c.since, now))
}

// index finds the conditions of a route by object. The map is keyed by a hash of source, namespace
// and name (see [Census]), which takes half the memory of the names. Conditions with the same hash
// form a list.
type index struct {
	census *Census
	share  *Share // of the conditions, with those of other routes
	byHash map[uint64]*Condition
}

// find returns the condition of an object, or nil. at is the index of its source, h the hash.
func (x *index) find(h uint64, at int, key event.Key) *Condition {
	c := x.byHash[h]
	for c != nil && (int(c.source) != at || c.object.Key() != key) {
		c = c.next
	}
	return c
}

func (x *index) add(h uint64, c *Condition) {
	c.next = x.byHash[h]
	x.byHash[h] = c
	x.census.place(h).Add(1)
	x.share.add(1)
}

func (x *index) remove(h uint64, c *Condition) {
	x.census.place(h).Add(-1)
	x.share.add(-1)
	if first := x.byHash[h]; first != c {
		before := first
		for before.next != c {
			before = before.next
		}
		before.next = c.next
	} else if c.next != nil {
		x.byHash[h] = c.next
	} else {
		delete(x.byHash, h)
	}
	c.next = nil
}

// all yields all conditions, in no order. The yielded condition may be removed during the
// iteration.
func (x *index) all(yield func(*Condition) bool) {
	for _, c := range x.byHash {
		for c != nil {
			next := c.next
			if !yield(c) {
				return
			}
			c = next
		}
	}
}
