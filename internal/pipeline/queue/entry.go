package queue

import (
	"iter"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Key identifies a lane: an object of a source, or, with an empty Source, the value of the key
// expression of the route in Name.
type Key struct{ Source, Namespace, Name string }

// ObjectKey returns the Key of the object of d.
func ObjectKey(d *event.Delta) Key {
	key := d.Key()
	return Key{d.Source, key.Namespace, key.Name}
}

// Stage is the progress of an entry. The entries of one object are in this order: attempted,
// waiting, evaluating, pending, spilled.
type Stage uint8

// The stages, in the reverse order of delivery.
const (
	// Spilled entries are in the tail: neither in a lane nor, by object, with those of the other
	// stages.
	Spilled Stage = iota
	// Pending entries were added before the route was ready. Neither filter nor key are known, and
	// they are in no lane.
	Pending
	// Evaluating entries are pending ones whose filter is being evaluated, and restored ones that
	// are not yet in their lane.
	Evaluating
	// Waiting entries are in their lane and were never attempted: they may be coalesced.
	Waiting
	// Attempted entries are in a batch, or back from one.
	Attempted
)

// Source is the origin of a delta.
type Source uint8

// The sources of a queue.
const (
	// Live deltas come from an informer, a timer or an upstream route.
	Live Source = iota
	// Restored deltas are read from disk, after a restart or from the tail.
	Restored
	// DeadLetter deltas are redelivered. The dead letter stays on disk until the delivery succeeds,
	// so the checkpoint does not contain the delta, and it is never coalesced.
	DeadLetter
	// Reconfigured deltas were pending under the previous configuration of the route.
	Reconfigured
)

// Item is a delta to add, see [Queue.Add].
type Item struct {
	Delta *event.Delta
	From  Source
	// Tail adds it behind the head, to the entries that are on their way to the disk.
	Tail bool
	// Unseen: filter and key were not evaluated yet, or failed.
	Unseen bool
	Limit  Limit
	// Number identifies the delta in the checkpoint (Restored), DeadLetter the dead letter of a
	// redelivery.
	Number, DeadLetter uint64
	// Since is the time at which it was seen. Zero: Delta.Seen.
	Since time.Time
	// Closed is the set of sinks that are done with it, one bit each. Attempts is the number of
	// failed calls of the handler.
	Closed   uint64
	Attempts int
	// Old is the entry of the previous configuration (Reconfigured).
	Old *Entry
}

// Entry is one pending delta. It belongs to the queue, except Progress, which belongs to the worker
// that has taken it. Some fields are set only by methods of [Queue], as noted.
type Entry struct {
	Delta      *event.Delta // see SetDelta
	Since      time.Time    // when the first of the coalesced deltas was seen
	Unseen     bool         // filter and key were not evaluated yet, or failed
	Counted    bool         // as matched
	Restored   bool         // pending since before a restart: it counts as attempted
	Limit      Limit
	DeadLetter uint64 // the dead letter of a redelivery; 0: none
	Work       uint64 // its number in the process that has admitted it, see pipeline.Work; 0: this one
	Progress   *Progress
	Saved      Saved
	Trace      *trace.Span // nil: tracing is off

	lane, object *Lane
	links        [4]links
	stage        Stage
	bytes        int64  // counted in its head or tail, see Head.Weigh
	taken        bool   // in a batch now
	takenBefore  bool   // taken before: its lane does not wait for more deltas because of it
	group        *Entry // the last entry of its group; nil: it is taken alone
}

// Limit is the state of an entry regarding the limit of its route.
type Limit struct {
	Later bool   // the limit is applied when the entry is taken, by Key
	Key   string // of the limit
	// the pass of the limit, which gets it back if the entry is not delivered; nil: none
	Pass *rules.Pass
}

// Saved is the state of an entry in the checkpoint, see [Changes].
type Saved struct {
	ID       uint64 // in the order of arrival; 0: not tracked
	Closed   uint64 // Progress.Closed and Progress.Attempts, as last reported by the worker
	Attempts int

	written bool // it was handed over
	changed bool // it is in the dirty set
}

// Key returns the key by which the entry is ordered.
func (e *Entry) Key() Key { return e.lane.key }

// Object returns the key of the entry's object.
func (e *Entry) Object() Key { return e.object.key }

// SameLane reports whether two entries have the same lane.
func (e *Entry) SameLane(o *Entry) bool { return e.lane == o.lane }

// Lane returns the lane of an entry; nil: it has none yet.
func (e *Entry) Lane() *Lane { return e.lane }

// Before yields the n entries before e in its lane, the last one first.
func (e *Entry) Before(n int) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for before := e.links[byLane].prev; n > 0 && before != nil && yield(before); n-- {
			before = before.links[byLane].prev
		}
	}
}

// Stage returns the stage of the entry.
func (e *Entry) Stage() Stage { return e.stage }

// Grouped reports whether the entry is part of a group.
func (e *Entry) Grouped() bool { return e.group != nil }

// Return records that the worker has finished with the entry. Its lane stays taken until Release.
func (e *Entry) Return() { e.taken = false }

func (e *Entry) start(m *memory) *Progress {
	if e.Progress == nil {
		e.Progress = reuse(&m.progresses)
	}
	return e.Progress
}

// resume sets the progress that a restored entry has already made.
func (e *Entry) resume(i *Item, m *memory) {
	e.Saved.Closed, e.Saved.Attempts = i.Closed, i.Attempts
	p := e.start(m)
	p.Closed, p.Attempts = i.Closed, i.Attempts
}

// next reports whether all earlier entries of its object are done, or precede e in the same batch.
func (e *Entry) next() bool {
	before := e.links[byObject].prev
	return before == nil || before.taken && before.lane == e.lane
}

// durable reports whether the identity of the object is on disk. An object is delivered only then,
// because otherwise a crash could lose its deletion.
func (e *Entry) durable() bool {
	if transit.Of(e.Delta).Durable == nil {
		return true
	}
	select {
	case <-transit.Of(e.Delta).Durable:
		return true
	default:
		return false
	}
}

// NextState returns the state of the object of e after the next change of it in memory whose states
// are not bare; nil: there is none, or the object ends before.
func NextState(q *Queue, e *Entry) *event.Object {
	first := [2]*Entry{e.links[byObject].next}
	if s := q.Tail.slots[e.object.key]; s != nil {
		first[1] = s.object.head
	}
	for _, next := range first {
		for ; next != nil; next = next.links[byObject].next {
			switch now := next.Delta.New; {
			case now == nil || now.UID() != e.Delta.Object().UID():
				return nil
			case !now.IsBare():
				return now
			}
		}
	}
	return nil
}

func (e *Entry) alone() bool { return e.Progress != nil && e.Progress.Alone }

// plain reports whether e may be in a group. Redelivered dead letters and entries whose filter
// failed are handled alone.
func (e *Entry) plain() bool {
	return e.DeadLetter == 0 && (e.Progress == nil || e.Progress.Dead == nil)
}

type links struct{ prev, next *Entry }

// The lists that contain an entry: see Lane, Queue and Changes.
const (
	byLane = iota
	byObject
	byAge
	byChange
)

// list is a list of entries through one of their links. Adding and removing allocate nothing.
type list struct {
	head, tail *Entry
	len        int
}

func (l *list) push(e *Entry, by int) { l.insert(e, nil, by) }

// insert puts e before next, at the end if next is nil.
func (l *list) insert(e, next *Entry, by int) {
	prev := l.tail
	if next != nil {
		prev = next.links[by].prev
		next.links[by].prev = e
	} else {
		l.tail = e
	}
	if prev != nil {
		prev.links[by].next = e
	} else {
		l.head = e
	}
	e.links[by] = links{prev, next}
	l.len++
}

func (l *list) remove(e *Entry, by int) {
	at := e.links[by]
	if at.prev != nil {
		at.prev.links[by].next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.links[by].prev = at.prev
	} else {
		l.tail = at.prev
	}
	e.links[by] = links{}
	l.len--
}
