// Package queue contains the pending deltas of one route in the order of their delivery.
//
// A delta becomes an [Entry] with [Queue.Add], gets a lane, the FIFO of its key, with
// [Queue.Place], and is taken in a batch with [Queue.Take]. It ends with [Queue.Remove], or returns
// to its lane with [Queue.Release].
//
//	Add ──► pending ──Place──► lane ──Take──► batch ──► Remove
//	  └────► tail ──► disk       ▲              │
//	                             └───Release────┘
//
// A lane is in one of these states:
//   - ready: it can be taken
//   - busy: a worker has taken entries of it
//   - delayed until a time
//   - debouncing while its [Window] is open
//   - blocked by an earlier entry of the same object in another lane (the key of an object can
//     change)
//   - gated until the identity of its object is on disk
//
// Only later entries wait for earlier ones, so there is no deadlock.
//
// The queue has no clock and no lock, calls no handler and no sink, and never blocks: its route
// guards it. Add and Place are called under the cut lock of a source and take about as long as a
// map access.
package queue

import (
	"iter"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Queue is the pending deltas of a route: the head, which has lanes, and the tail. The zero Queue
// is empty, tracks no changes and has no window. It is not safe for concurrent use.
type Queue struct {
	Head    Head
	Lanes   Lanes
	Tail    Tail
	Changes Changes
	Unspent Unspent
	// Absorbed is called with each entry whose delta is coalesced into another one, into, while its
	// Trace is set. into is nil if two deltas have cancelled each other. nil: not called.
	Absorbed func(e *Entry, into *event.Delta)

	slots   map[Key]*Lane
	inOrder bool // an entry that a sink did not take may share a batch with later ones of its lane
	memory  memory
}

// memory keeps some freed entries, lanes and progresses, so that a steady flow allocates nothing.
type memory struct {
	entries    []*Entry
	lanes      []*Lane
	progresses []*Progress
}

// keepFree is the number of freed values of each type that are kept.
const keepFree = 1024

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

// Configure sets the window, and whether a write may have several deltas of one key. It does not
// affect lanes that are already debouncing.
func (q *Queue) Configure(w Window, inOrder bool) { q.Lanes.window, q.inOrder = w, inOrder }

// Len returns the number of pending deltas, including those on disk.
func (q *Queue) Len() int { return q.Head.Len() + q.Tail.entries.len + q.Tail.n }

// Tailed reports whether there is a tail.
func (q *Queue) Tailed() bool { return q.Tail.n > 0 || q.Tail.entries.len > 0 }

// Oldest returns the time at which the oldest pending delta was seen.
func (q *Queue) Oldest() (oldest time.Time) {
	oldest = q.Head.oldest()
	if e := q.Tail.entries.head; e != nil && (oldest.IsZero() || e.Since.Before(oldest)) {
		oldest = e.Since
	}
	t := &q.Tail
	if t.n > 0 && !t.since.IsZero() && (oldest.IsZero() || t.since.Before(oldest)) && q.Head.Len() == 0 {
		return t.since
	}
	return oldest
}

// Add makes a delta pending, at the end of the tail or in the head without a lane. A Restored delta
// from before a restart gets the stage Evaluating, a Reconfigured one Evaluating or its old stage,
// and every other one Pending.
func (q *Queue) Add(i Item) *Entry {
	e := reuse(&q.memory.entries)
	e.Delta, e.Since, e.Unseen, e.Limit, e.DeadLetter = i.Delta, i.Since, i.Unseen, i.Limit, i.DeadLetter
	if e.Since.IsZero() {
		e.Since = i.Delta.Seen
	}
	// A delta from before a restart or a change keeps its progress, and must be evaluated again
	// before it gets a lane; a live one is new to the checkpoint.
	to := Pending
	switch i.From {
	case Live:
		q.Changes.added(e)
	case Restored:
		if i.Number <= q.Tail.before {
			to, e.Restored = Evaluating, true
		}
		q.Changes.restored(e, i.Number)
		e.resume(&i, &q.memory)
	case DeadLetter:
		e.resume(&i, &q.memory)
	case Reconfigured:
		to = q.adopt(e, &i)
	}
	if i.Tail {
		q.Tail.add(e, &q.memory)
	} else {
		q.Head.add(e, q.slot(ObjectKey(e.Delta)), to)
	}
	return e
}

// Start returns the progress of an entry, and creates it if there is none.
func (q *Queue) Start(e *Entry) *Progress { return e.start(&q.memory) }

// Place puts an entry without a lane at the end of the lane of a key. It reports whether that lane
// is now the first one due, so that the timer of the leader must be set again.
func (q *Queue) Place(e *Entry, key Key, now time.Time) (first bool) {
	before := q.place(e, key)
	return q.Lanes.window.On() && q.Lanes.extend(e.lane, before, now)
}

// PlaceAttempted places an entry as attempted: it is never coalesced, and its lane does not wait
// for more deltas.
func (q *Queue) PlaceAttempted(e *Entry, key Key) {
	q.place(e, key)
	q.Head.setStage(e, Attempted)
	e.takenBefore = true
	e.lane.untaken--
}

// place is Place without a window. It returns the previous state of the lane.
func (q *Queue) place(e *Entry, key Key) (before laneState) {
	s := e.object
	if s.key != key {
		s = q.slot(key)
	}
	before = s.state
	e.lane = s
	s.lane.push(e, byLane)
	s.untaken++
	q.Head.setStage(e, Waiting)
	q.Lanes.extended(s)
	return before
}

// Remove ends an entry that no worker has, or that its worker has finished.
func (q *Queue) Remove(e *Entry) {
	q.Changes.removed(e)
	if e.stage == Spilled {
		q.Tail.dropped(e)
	} else {
		q.Head.remove(e)
	}
	// The lane of the key and the lane of the object are the same, unless the route has a key.
	lane, object := e.lane, e.object
	if lane != nil {
		lane.lane.remove(e, byLane)
		if !e.takenBefore {
			lane.untaken--
		}
		q.Lanes.shortened(lane)
	}
	// The next delta of the object may have waited for this one in another lane.
	object.object.remove(e, byObject)
	if next := object.object.head; next != nil && next.lane != nil && next.lane.state == blocked && next.lane.lane.head == next {
		q.Lanes.makeReady(next.lane)
	}
	if lane != nil && lane != object {
		q.free(lane)
	}
	if object.inTail {
		q.Tail.free(object, &q.memory)
	} else {
		q.free(object)
	}
	if p := e.Progress; p != nil {
		p.reset()
		keep(&q.memory.progresses, p)
	}
	*e = Entry{}
	keep(&q.memory.entries, e)
}

// SetDelta replaces the delta of an entry, without marking the entry as dirty.
func (q *Queue) SetDelta(e *Entry, d *event.Delta) {
	e.Delta = d
	if e.stage == Spilled {
		e.weigh(&q.Tail.bytes)
	} else {
		q.Head.Weigh(e)
	}
}

// slot returns the lane of a key, and creates it if there is none.
func (q *Queue) slot(key Key) *Lane {
	if s := q.slots[key]; s != nil {
		return s
	}
	s := reuse(&q.memory.lanes)
	s.key = key
	if q.slots == nil {
		q.slots = map[Key]*Lane{}
	}
	q.slots[key] = s
	return s
}

// free drops a lane that is not in use.
func (q *Queue) free(s *Lane) {
	if s.lane.len > 0 || s.object.len > 0 || s.state == busy || q.slots[s.key] != s {
		return
	}
	delete(q.slots, s.key)
	*s = Lane{}
	keep(&q.memory.lanes, s)
}

// OldestUntried returns the oldest entry in memory that was never attempted; nil: there is none.
func (q *Queue) OldestUntried() *Entry {
	if e := q.Head.oldestUntried(); e != nil {
		return e
	}
	return q.Tail.entries.head
}

// Uncount marks all entries as not counted.
func (q *Queue) Uncount() {
	for e := range q.all() {
		e.Counted = false
	}
	q.Tail.counted = q.Changes.last
}

// all yields all entries in memory, those of one object in order.
func (q *Queue) all() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e := range q.Head.all() {
			if !yield(e) {
				return
			}
		}
		for e := q.Tail.entries.head; e != nil; e = e.links[byAge].next {
			if !yield(e) {
				return
			}
		}
	}
}

// EndWindows closes all open windows, and disables windows from then on.
func (q *Queue) EndWindows() {
	q.Lanes.window.Quiet, q.Lanes.window.Wait = 0, 0
	for _, s := range q.slots {
		if s.state == debouncing {
			q.Lanes.endDebounce(s)
		}
		s.endWindow()
	}
}
