package pipeline

import (
	"container/heap"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// queue is everything that a route owes, and the order in which it is done: the head, which is all of what follows, and the tail. It knows nothing of handlers, sinks or clocks, never
// blocks, and takes no lock: its route guards it. add is called under a source's cut lock and costs about a map look-up.
//
// Each entry is in a lane, the FIFO of its key. A lane is in the ready list, or with a worker, or delayed until a time, or blocked
// by an earlier entry of the same object in another lane (the key of an object can change), or gated until the disk knows its object.
// Only later entries wait for earlier ones, so there is no deadlock.
type queue struct {
	slots map[id]*slot
	ages  [attempted + 1]list // by stage, the oldest first

	ready    lanes // those that can be taken
	readyLen int   // the deltas in them
	delayed  delays
	unspent  []unspent
	gated    lanes
	shape    shape
	now      time.Time // of the last wake
	restLen  int       // the deltas in lanes that rest

	tail    tail
	changes changes

	// Some freed ones, so that a steady flow allocates nothing.
	freeEntries []*entry
	freeSlots   []*slot
	freeWork    []*work
}

// keepFree is how many freed ones of a kind are kept.
const keepFree = 1024

func (q *queue) owed() int {
	n := q.tail.n
	for i := range q.ages {
		n += q.ages[i].len
	}
	return n
}

// oldest returns when the oldest owed delta was seen.
func (q *queue) oldest() (oldest time.Time) {
	for i := range q.ages {
		if e := q.ages[i].head; e != nil && (oldest.IsZero() || e.since.Before(oldest)) {
			oldest = e.since
		}
	}
	if q.tail.n > 0 && !q.tail.since.IsZero() && (oldest.IsZero() || q.tail.since.Before(oldest)) && q.headLen() == 0 {
		return q.tail.since
	}
	return oldest
}

// add owes d, in the lane of the given key.
func (q *queue) add(d *event.Delta, lane id) *entry {
	e := q.addPending(d)
	q.place(e, lane)
	return e
}

// addPending owes d without a lane, until place.
func (q *queue) addPending(d *event.Delta) *entry {
	e := q.append(d, pending)
	e.unseen = true
	q.changes.added(e)
	return e
}

// restore owes what is on disk, without a lane.
func (q *queue) restore(d *event.Delta, number uint64) *entry {
	st := pending
	if number <= q.tail.before {
		st = settling
	}
	e := q.append(d, st)
	e.restored, e.work = st == settling, reuse(&q.freeWork)
	q.changes.restored(e, number)
	return e
}

func (q *queue) append(d *event.Delta, st stage) *entry {
	e := reuse(&q.freeEntries)
	e.delta, e.since, e.stage = d, d.Seen, st
	e.object = q.slot(objectID(d))
	e.object.object.push(e, byObject)
	q.ages[st].push(e, byAge)
	return e
}

// place puts a pending entry at the end of its lane.
func (q *queue) place(e *entry, lane id) {
	s := e.object
	if s.id != lane {
		s = q.slot(lane)
	}
	e.lane = s
	s.lane.push(e, byLane)
	s.fresh++
	q.setStage(e, waiting)
	switch s.state {
	case idle:
		q.makeReady(s)
	case ready:
		q.readyLen++
	case resting:
		q.restLen++
	case busy, delayed, blocked, gated:
	}
}

// setStage keeps the place of an entry that is in the stage already: within a stage the entries of an object are in order.
func (q *queue) setStage(e *entry, to stage) {
	if e.stage == to { // its age there is that of the first time: who takes over goes by it
		return
	}
	q.ages[e.stage].remove(e, byAge)
	e.stage = to
	q.ages[to].push(e, byAge)
}

// remove ends an entry that no worker has, or that its worker is done with.
func (q *queue) remove(e *entry) {
	q.changes.removed(e)
	if e.stage == spilled {
		q.tail.gave(e)
	}
	q.ages[e.stage].remove(e, byAge)
	lane, object := e.lane, e.object
	if lane != nil {
		lane.lane.remove(e, byLane)
		if !e.rested {
			lane.fresh--
		}
		q.shortened(lane)
	}
	object.object.remove(e, byObject)
	if next := object.object.head; next != nil && next.lane != nil && next.lane.state == blocked && next.lane.lane.head == next {
		q.makeReady(next.lane)
	}
	if lane != nil && lane != object {
		q.free(lane)
	}
	q.free(object)
	if w := e.work; w != nil {
		w.reset()
		keep(&q.freeWork, w)
	}
	*e = entry{}
	keep(&q.freeEntries, e)
}

func reuse[T any](free *[]*T) *T {
	n := len(*free)
	if n == 0 {
		return new(T)
	}
	x := (*free)[n-1]
	(*free)[n-1] = nil
	*free = (*free)[:n-1]
	return x
}

func keep[T any](free *[]*T, x *T) {
	if len(*free) < keepFree {
		*free = append(*free, x)
	}
}

// shortened is called after a lane lost an entry.
func (q *queue) shortened(s *slot) {
	switch s.state {
	case ready:
		q.readyLen--
		if s.lane.len == 0 {
			q.unready(s)
		}
	case resting:
		q.restLen--
		fallthrough
	case delayed:
		if s.lane.len == 0 {
			heap.Remove(&q.delayed, s.index)
			s.state = idle
		}
	case gated: // by another entry, maybe, than the one that is first now
		q.gated.remove(s)
		fallthrough
	case blocked: // likewise
		s.state = idle
		if s.lane.len > 0 {
			q.makeReady(s)
		}
	case idle, busy:
	}
	if s.lane.len == 0 {
		s.forgetRest()
	}
}

func (q *queue) slot(name id) *slot {
	if s := q.slots[name]; s != nil {
		return s
	}
	s := reuse(&q.freeSlots)
	s.id = name
	if q.slots == nil {
		q.slots = map[id]*slot{}
	}
	q.slots[name] = s
	return s
}

// free forgets a slot that is out of use.
func (q *queue) free(s *slot) {
	slots := q.slots
	if s.inTail {
		slots = q.tail.slots
	}
	if s.lane.len > 0 || s.object.len > 0 || s.state == busy || slots[s.id] != s {
		return
	}
	delete(slots, s.id)
	*s = slot{}
	keep(&q.freeSlots, s)
}

func (q *queue) makeReady(s *slot) {
	if !s.restless() {
		q.layDown(s)
		return
	}
	s.state = ready
	q.ready.push(s)
	q.readyLen += s.lane.len
}

// unready takes s out of the ready list.
func (q *queue) unready(s *slot) {
	q.ready.remove(s)
	s.state = idle
	q.readyLen -= s.lane.len
}

// take appends up to limit entries to batch: those of one lane stand together, in order. An entry that failed is the last of its lane
// in a batch, since what comes after it would likely be in vain; one that failed together with others is alone in its batch. Where lanes
// are groups, a batch has entries of one lane alone. pass is asked about what is taken for the first time and is subject to a limit: the
// last one of n that are to be taken as one. If it says no, they are removed.
func (q *queue) take(limit int, batch []*entry, pass func(last *entry, n int) bool) []*entry {
	for s := q.ready.head; s != nil && len(batch) < limit; s = q.ready.head {
		e := s.lane.head
		if !e.next() {
			q.unready(s)
			s.state = blocked
			continue
		}
		if !e.durable() {
			q.unready(s)
			s.state = gated
			q.gated.push(s)
			continue
		}
		alone := e.alone()
		if alone && len(batch) > 0 {
			break
		}
		n := 1
		if q.shape.joint || q.shape.grouped && e.unlimited { // the limit is asked about a group as a whole
			n = q.group(e)
		}
		if !q.passes(e, n, pass) {
			continue
		}
		q.unready(s)
		s.state = busy
		if q.shape.joint {
			batch = q.takeGroup(e, n, batch)
			q.takenFrom(s)
			return batch
		}
		for e != nil {
			q.takeOne(e)
			batch = append(batch, e)
			if e.work.failures() > 0 || len(batch) == limit {
				break
			}
			e = q.follower(e, pass)
		}
		q.takenFrom(s)
		if alone || q.shape.grouped {
			break
		}
	}
	return batch
}

// next reports whether nothing of its object has to be done before e, other than what stands before it in the same batch.
func (e *entry) next() bool {
	before := e.links[byObject].prev
	return before == nil || before.taken && before.lane == e.lane
}

// durable reports whether the identity of the object is on disk: nothing may be told of an object whose end could be missed.
func (e *entry) durable() bool { return e.delta.Durable == nil || isClosed(e.delta.Durable) }

func (e *entry) alone() bool { return e.work != nil && e.work.alone }

// release gives a lane back that take has taken: to the end of the ready list, or not before at.
func (q *queue) release(s *slot, at time.Time) {
	s.state = idle
	switch {
	case s.lane.len == 0:
		q.free(s)
	case at.IsZero():
		q.makeReady(s)
	default:
		s.state, s.at = delayed, at
		heap.Push(&q.delayed, s)
	}
}

// wake makes the lanes ready whose time has come.
func (q *queue) wake(now time.Time) {
	q.now = now
	for len(q.delayed) > 0 && !q.delayed[0].at.After(now) {
		if s := heap.Pop(&q.delayed).(*slot); q.getUp(s, now) {
			q.makeReady(s)
		}
	}
}

// pass makes the gated lanes ready whose gates are closed. Gates are closed in the order in which they were made.
func (q *queue) pass() {
	for s := q.gated.head; s != nil && s.lane.head.durable(); s = q.gated.head {
		q.gated.remove(s)
		q.makeReady(s)
	}
}

// gate returns what to wait for until a gated lane can be taken; nil: there is none.
func (q *queue) gate() <-chan struct{} {
	if s := q.gated.head; s != nil {
		return s.lane.head.delta.Durable
	}
	return nil
}

// wakeAll makes all delayed lanes ready, but not those that rest.
func (q *queue) wakeAll() {
	var still delays
	for len(q.delayed) > 0 {
		s := heap.Pop(&q.delayed).(*slot)
		if s.state == resting {
			still = append(still, s)
			continue
		}
		q.makeReady(s)
	}
	for _, s := range still {
		heap.Push(&q.delayed, s)
	}
}
