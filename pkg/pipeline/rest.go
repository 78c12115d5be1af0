package pipeline

import (
	"container/heap"
	"time"
)

// Debounce makes a route wait for a quiet period: what comes for an object (or for the key of the route) is folded until nothing has
// come for Quiet, or until the first that waits has waited for Max. 0: it does not wait.
type Debounce struct {
	Quiet time.Duration
	Max   time.Duration // 0: ten times Quiet
}

// shape says how long what comes waits in its lane before it may be taken, so that more can come: for a quiet period, or, where lanes
// are groups, from the first of a group on.
type shape struct {
	quiet, max time.Duration
	grouped    bool
	wait       time.Duration // of a group
	size       int           // a group of so many is complete
	joint      bool          // a group is taken as one
}

func (r *Route) shape() shape {
	s := shape{quiet: r.Debounce.Quiet, max: or(r.Debounce.Max, 10*r.Debounce.Quiet), joint: r.Joint}
	if r.Grouped {
		s.grouped, s.wait, s.size = true, r.Batch.Wait, r.Batch.Size
	}
	return s
}

// rests reports whether anything waits in its lane at all.
func (s *shape) rests() bool { return s.quiet > 0 || s.grouped && s.wait > 0 }

// rest has a lane that e was just put in wait for more. before is the state that it was in. What waits for a worker already, or is
// held up by something else, does not begin anew: e goes with it. It reports whether the lane is the one that is due first.
func (q *queue) rest(s *slot, before laneState, now time.Time) (first bool) {
	switch before {
	case ready, blocked, gated:
		if s.until.IsZero() && !s.lane.head.rested {
			return false
		}
	case idle, busy, delayed, resting:
	}
	q.wait(s, now)
	switch s.state {
	case ready:
		if !s.restless() {
			q.unready(s)
			q.makeReady(s)
		}
	case resting:
		if s.until.Before(s.at) { // else it is looked at when it would have been over
			s.at = s.until
			heap.Fix(&q.delayed, s.index)
		}
	case idle, busy, delayed, blocked, gated:
	}
	return len(q.delayed) > 0 && q.delayed[0] == s
}

// wait says until when what was never taken of a lane waits, to which something was added just now.
func (q *queue) wait(s *slot, now time.Time) {
	if s.began.IsZero() {
		s.began = now
	}
	if q.shape.quiet > 0 {
		s.until = now.Add(q.shape.quiet)
		if latest := s.began.Add(q.shape.max); latest.Before(s.until) {
			s.until = latest
		}
	} else {
		s.until = s.began.Add(q.shape.wait)
	}
	if q.shape.grouped && s.fresh >= q.shape.size {
		s.until = now
	}
}

// takenFrom is called when entries of a lane were taken that is a group: what is left is the beginning of another one.
func (q *queue) takenFrom(s *slot) {
	if q.shape.grouped && q.shape.rests() && s.fresh > 0 && s.until.IsZero() {
		q.wait(s, q.now)
	}
}

// restless reports whether the lane need not wait for more: its first entry has done so before.
func (s *slot) restless() bool { return s.until.IsZero() || s.lane.head.rested }

// layDown makes a lane rest until its time. It is in the heap of the delayed ones.
func (q *queue) layDown(s *slot) {
	s.state, s.at = resting, s.until
	q.restLen += s.lane.len
	heap.Push(&q.delayed, s)
}

// getUp is called when the first of the delayed lanes was taken from the heap at its time. It returns false if that has moved on meanwhile.
func (q *queue) getUp(s *slot, now time.Time) bool {
	if s.state != resting {
		return true
	}
	if s.until.After(now) {
		s.at = s.until
		heap.Push(&q.delayed, s)
		return false
	}
	q.restLen -= s.lane.len
	s.forgetRest()
	return true
}

func (s *slot) forgetRest() { s.until, s.began = time.Time{}, time.Time{} }

// disturb ends all rests, now and from now on.
func (q *queue) disturb() {
	q.shape.quiet, q.shape.wait = 0, 0
	for _, s := range q.slots {
		if s.state == resting {
			heap.Remove(&q.delayed, s.index)
			q.restLen -= s.lane.len
			s.forgetRest()
			q.makeReady(s)
		}
		s.forgetRest()
	}
}

// folds reports whether what waits for an object folds, whatever room there is.
func (r *route) folds() bool { return r.cfg.Deliver == Latest || r.q.shape.quiet > 0 }

// lay puts an entry in its lane, which may have to wait for more.
func (r *route) lay(e *entry, lane id) {
	if !r.q.shape.rests() {
		r.q.place(e, lane)
		return
	}
	before := idle
	if s := r.q.slots[lane]; s != nil {
		before = s.state
	}
	r.q.place(e, lane)
	if r.q.rest(e.lane, before, r.now()) {
		r.signal() // the leader waits for a later one, or for none
	}
}

// asleep reports whether all that the route could work on rests, and stays owed when it stops: what is in memory, and with that what comes
// behind it.
func (r *route) asleep() bool {
	return r.draining && r.q.restLen > 0 && r.q.restLen == r.q.headLen() && (!r.q.tailed() || r.q.headLen() >= r.cfg.Capacity)
}
