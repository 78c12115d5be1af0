package queue

import "time"

// Passing applies the limit to n entries that are taken as one group; last is the last of them.
type Passing func(last *Entry, n int) bool

// Take appends up to limit entries to batch, those of one lane together and in order:
//   - An entry that its handler failed on, or that a sink without in-order writes did not take, is
//     the last of its lane in the batch, because the entries behind it would probably fail, too.
//   - An entry of a failed batch is alone in its batch.
//   - If lanes are groups, a batch has entries of one lane only.
//   - pass is called for entries that are taken for the first time and are subject to a limit; nil:
//     there is no limit. If it returns false, they are removed.
func (q *Queue) Take(limit int, batch []*Entry, pass Passing) []*Entry {
	t := taking{Queue: q, window: &q.Lanes.window, limit: limit, batch: batch, pass: pass}
	for s := q.Lanes.ready.head; s != nil && len(t.batch) < limit; s = q.Lanes.ready.head {
		if t.takeLane(s) {
			break
		}
	}
	return t.batch
}

// taking is one call of Take.
type taking struct {
	*Queue

	window *Window
	limit  int
	batch  []*Entry
	pass   Passing
}

// takeLane takes entries of a ready lane, if any can be taken. It reports whether the batch is
// complete.
func (t *taking) takeLane(s *Lane) (complete bool) {
	e := s.lane.head
	switch {
	case !e.next():
		t.Lanes.unready(s)
		s.state = blocked
		return false
	case !e.durable():
		t.Lanes.gate(s)
		return false
	}
	alone := e.alone() // its last batch failed as a whole
	if alone && len(t.batch) > 0 {
		return true
	}
	n := 1
	// the limit applies to a group as a whole
	if t.window.Joint || t.window.Grouped && e.Limit.Later {
		n = t.groupLen(e)
	}
	if !t.passes(e, n) {
		return false
	}
	t.Lanes.unready(s)
	s.state = busy
	if t.window.Joint {
		t.takeGroup(e, n)
	} else {
		t.takeEach(e)
	}
	t.Lanes.takenFrom(s)
	return alone || t.window.Grouped || t.window.Joint
}

// takeEach takes e and the following entries that may share its batch.
func (t *taking) takeEach(e *Entry) {
	for e != nil {
		t.take(e)
		if len(t.batch) == t.limit || e.Progress.holdsUp(t.inOrder) {
			return
		}
		e = t.follower(e)
	}
}

// take gives an entry to the worker.
func (t *taking) take(e *Entry) {
	e.taken = true
	if !e.takenBefore {
		e.takenBefore = true
		e.lane.untaken--
	}
	t.Head.setStage(e, Attempted)
	t.Start(e)
	t.batch = append(t.batch, e)
}

// follower returns the entry behind e in its lane that may share its batch; nil: there is none.
func (t *taking) follower(e *Entry) *Entry {
	for {
		n := e.links[byLane].next
		if n == nil || !n.next() || n.alone() || !n.durable() || !n.takenBefore && !n.lane.until.IsZero() {
			return nil
		}
		if t.passes(n, 1) {
			return n
		}
	}
}

// passes applies the limit to n entries of a lane, from e on. If it refuses, they are removed.
func (t *taking) passes(e *Entry, n int) bool {
	if !e.Limit.Later {
		return true
	}
	last := e
	for range n - 1 {
		last = last.links[byLane].next
	}
	ok := t.pass(last, n)
	for range n {
		next := e.links[byLane].next
		if ok {
			e.Limit.Later, e.Limit.Key = false, ""
			t.Changes.Note(e)
		} else {
			t.Remove(e)
		}
		e = next
	}
	return ok
}

// groupLen returns the number of entries of a lane, from its first entry e on, that are taken as
// one group. A group that was taken before stays together.
func (t *taking) groupLen(e *Entry) (n int) {
	if e.group != nil {
		for n = 1; e != e.group; n++ {
			e = e.links[byLane].next
		}
		return n
	}
	first := e
	for n < t.window.Size && e != nil && (e == first || e.joins(first)) {
		e.taken = true // so that it does not block the next one
		e = e.links[byLane].next
		n++
	}
	for e, m := first, n; m > 0; m-- {
		e.taken = false
		e = e.links[byLane].next
	}
	return n
}

// takeGroup takes the first n entries of a lane as one group.
func (t *taking) takeGroup(e *Entry, n int) {
	for range n {
		t.take(e)
		e = e.links[byLane].next
	}
	for _, member := range t.batch {
		member.group = t.batch[len(t.batch)-1]
	}
}

// joins reports whether e can be in the group of first, which precedes it in the lane.
func (e *Entry) joins(first *Entry) bool {
	return first.plain() && e.plain() && e.next() && e.durable() && (e.takenBefore || e.lane.until.IsZero()) &&
		e.group == nil && e.Limit.Later == first.Limit.Later && e.Saved.Closed == first.Saved.Closed
}

// Release returns a lane from which Take has taken entries: to the end of the ready list, or
// delayed if at is set. It reports whether the lane is now the first one due.
func (q *Queue) Release(s *Lane, at time.Time) (first bool) {
	s.state = idle
	switch {
	case s.lane.len == 0:
		q.free(s)
	case at.IsZero():
		q.Lanes.makeReady(s)
	default:
		q.Lanes.delay(s, at)
	}
	return q.Lanes.first(s)
}
