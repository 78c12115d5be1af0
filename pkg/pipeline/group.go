package pipeline

import "github.com/deltarouter/deltarouter/pkg/event"

// takeOne gives an entry to a worker.
func (q *queue) takeOne(e *entry) {
	e.taken = true
	if !e.rested {
		e.rested = true
		e.lane.fresh--
	}
	q.setStage(e, attempted)
	if e.work == nil {
		e.work = reuse(&q.freeWork)
	}
}

// follower returns the entry behind e in its lane that may be in the same batch; nil: there is none.
func (q *queue) follower(e *entry, pass passing) *entry {
	for {
		n := e.links[byLane].next
		if n == nil || !n.next() || n.alone() || !n.durable() || !n.rested && !n.lane.until.IsZero() {
			return nil
		}
		if q.passes(n, 1, pass) {
			return n
		}
	}
}

// passing asks the limit about n deltas that are to be taken as one, by the last of them.
type passing func(last *entry, n int) bool

// passes reports whether the limit lets n entries of a lane be taken, from e on. If not, they are gone.
func (q *queue) passes(e *entry, n int, pass passing) bool {
	if !e.unlimited {
		return true
	}
	last := e
	for range n - 1 {
		last = last.links[byLane].next
	}
	ok := pass(last, n)
	for range n {
		next := e.links[byLane].next
		if ok {
			e.unlimited, e.limitKey = false, ""
			q.changes.note(e)
		} else {
			q.remove(e)
		}
		e = next
	}
	return ok
}

// group returns how many entries of a lane are taken as one, from its first one, e, on. Those that were taken so before stay together.
func (q *queue) group(e *entry) (n int) {
	if e.group != nil {
		for n = 1; e != e.group; n++ {
			e = e.links[byLane].next
		}
		return n
	}
	first := e
	for n < q.shape.size && e != nil && (e == first || e.joins(first)) {
		e.taken = true // so that the next one sees that it is not in its way
		e = e.links[byLane].next
		n++
	}
	for e, m := first, n; m > 0; m-- {
		e.taken = false
		e = e.links[byLane].next
	}
	return n
}

// joins reports whether e can be in the group of first, which stands before it in its lane.
func (e *entry) joins(first *entry) bool {
	return first.plain() && e.plain() && e.next() && e.durable() && (e.rested || e.lane.until.IsZero()) &&
		e.group == nil && e.unlimited == first.unlimited && e.closed == first.closed
}

// plain reports whether nothing keeps e from being in a group: a dead letter that is delivered again and what the filter failed on stand
// for themselves.
func (e *entry) plain() bool { return e.letter == 0 && (e.work == nil || e.work.dead == nil) }

// takeGroup gives n entries of a lane to a worker, from its first one on.
func (q *queue) takeGroup(e *entry, n int, batch []*entry) []*entry {
	for range n {
		q.takeOne(e)
		batch = append(batch, e)
		e = e.links[byLane].next
	}
	for _, member := range batch {
		member.group = batch[len(batch)-1]
	}
	return batch
}

// members returns those whose fate e shares: the group that it is the last of, or e alone. It is called by the worker that has e.
func (w *worker) members(e *entry) []*entry {
	if e.group == nil {
		return append(w.alone[:0], e)
	}
	return w.group
}

// join has the worker see a group as its last entry alone, until part.
func (w *worker) join() {
	w.group = nil
	if len(w.batch) > 0 && w.batch[0].group != nil {
		w.group = w.batch
		w.batch = w.batch[len(w.batch)-1:]
	}
}

// part makes what came of the last entry of a group that of all its entries.
func (w *worker) part() {
	if w.group != nil {
		w.share()
		w.batch, w.group = w.group, nil
	}
}

// share tells the entries of a group what its last one came to so far.
func (w *worker) share() {
	last := w.group[len(w.group)-1].work
	for _, e := range w.group[:len(w.group)-1] {
		work := e.work
		work.state, work.delay, work.outcome, work.dead = last.state, last.delay, last.outcome, last.dead
		work.attempts, work.tries, work.closed = last.attempts, last.tries, last.closed
	}
}

// appendDeltas appends what the handler has to see of an entry: all of a group.
func (w *worker) appendDeltas(deltas []*event.Delta, e *entry) []*event.Delta {
	for _, m := range w.members(e) {
		deltas = append(deltas, m.delta)
	}
	return deltas
}
