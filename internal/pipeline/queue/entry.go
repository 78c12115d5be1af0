package queue

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Key names what is delivered in order: an object of a source, or, with an empty Source, the key
// that a route's own expression gave, in Name.
type Key struct{ Source, Namespace, Name string }

// ObjectKey returns the Key of the object of d.
func ObjectKey(d *event.Delta) Key {
	key := d.Key()
	return Key{d.Source, key.Namespace, key.Name}
}

// Stage is how far an entry got. The entries of one object are always attempted ones, then waiting
// ones, then settling ones, then pending ones, then spilled ones.
type Stage uint8

// The stages, in the reverse order of delivery.
const (
	// in the tail: neither in a lane nor, by its object, with those of the other stages
	Spilled Stage = iota
	// added before the route was ready: neither filter nor key are known, and it is in no lane
	Pending
	// pending, and its filter is being asked; or restored, and not yet in its lane
	Settling
	Waiting   // in its lane, never attempted: it may be coalesced
	Attempted // in a batch, or back from one
)

// Source is where a delta comes from.
type Source uint8

// The sources of a queue.
const (
	// Live deltas just happened: an informer saw them, time made them, or another route passed them
	// on.
	Live Source = iota
	// Restored deltas are read from disk, after a restart or from the tail.
	Restored
	// DeadLetter is a delta that was given up and is delivered again. The letter on disk outlives
	// it, so that the checkpoint does not have it, and it is never coalesced.
	DeadLetter
	// Reconfigured deltas were pending in the queue of the route's previous configuration.
	Reconfigured
)

// Item is a delta to add, see [Queue.Add].
type Item struct {
	Delta *event.Delta
	From  Source
	// Tail: it goes behind the head, to the entries that are on their way to the disk.
	Tail bool
	// Unseen: filter and key were not asked yet, or failed.
	Unseen bool
	Limit  Limit
	// Number is under which the checkpoint has it (Restored), Letter the dead letter that it comes
	// from.
	Number, Letter uint64
	// Since is when it was seen. Zero: Delta.Seen.
	Since time.Time
	// Closed are the sinks that are done with it, a bit each, and Attempts those of the handler
	// that failed.
	Closed   uint64
	Attempts int
	// Old is the entry of the previous configuration (Reconfigured).
	Old *Entry
}

// Entry is one pending delta. The queue owns all of it but Progress, which belongs to the worker
// that has taken it. Fields are set through the methods of [Queue] where one of these says so.
type Entry struct {
	Delta    *event.Delta // see SetDelta
	Since    time.Time    // when the first of the deltas that were coalesced into this one was seen
	Unseen   bool         // filter and key were not asked yet, or failed
	Counted  bool         // as matched
	Restored bool         // pending since before a restart: it counts as attempted
	Limit    Limit
	Letter   uint64 // the dead letter that it comes from; 0: none
	Progress *Progress
	Saved    Saved

	lane, object *Lane
	links        [4]links
	stage        Stage
	taken        bool   // in a batch at this moment
	rested       bool   // it was taken before: its lane does not wait for more because of it
	group        *Entry // the last of those that are taken as one; nil: it is taken by itself
}

// Limit is the rate limit of an entry.
type Limit struct {
	Later bool   // the limit was not asked yet, and is when the entry is taken, by Key
	Key   string // of the limit
	// of the limit, which takes it back if nothing comes of the entry; nil: it does not
	Pass *rules.Pass
}

// Saved is an entry as the checkpoint has it, see [Changes].
type Saved struct {
	ID       uint64 // in the order of their coming; 0: nothing is tracked
	Closed   uint64 // Progress.Closed and Progress.Attempts, as far as its worker has reported
	Attempts int

	written bool // it was handed over
	changed bool // it is to be handed over
}

// Key returns the key by which the entry is ordered.
func (e *Entry) Key() Key { return e.lane.key }

// Object returns the key of the entry's object.
func (e *Entry) Object() Key { return e.object.key }

// SameLane reports whether two entries are delivered one after the other.
func (e *Entry) SameLane(o *Entry) bool { return e.lane == o.lane }

// Lane returns the lane of an entry; nil: it has none yet.
func (e *Entry) Lane() *Lane { return e.lane }

// Stage returns how far the entry got.
func (e *Entry) Stage() Stage { return e.stage }

// Grouped reports whether the entry is taken as one with others.
func (e *Entry) Grouped() bool { return e.group != nil }

// Return says that the worker that took the entry has it no more. Its lane stays taken until
// Release.
func (e *Entry) Return() { e.taken = false }

func (e *Entry) start(m *memory) *Progress {
	if e.Progress == nil {
		e.Progress = reuse(&m.progresses)
	}
	return e.Progress
}

// resume gives an entry the progress that it has made already.
func (e *Entry) resume(i *Item, m *memory) {
	e.Saved.Closed, e.Saved.Attempts = i.Closed, i.Attempts
	p := e.start(m)
	p.Closed, p.Attempts = i.Closed, i.Attempts
}

// next reports whether nothing of its object has to be done before e, other than what stands before
// it in the same batch.
func (e *Entry) next() bool {
	before := e.links[byObject].prev
	return before == nil || before.taken && before.lane == e.lane
}

// durable reports whether the identity of the object is on disk: nothing may be told of an object
// whose end could be missed.
func (e *Entry) durable() bool {
	if e.Delta.Transit().Durable == nil {
		return true
	}
	select {
	case <-e.Delta.Transit().Durable:
		return true
	default:
		return false
	}
}

func (e *Entry) alone() bool { return e.Progress != nil && e.Progress.Alone }

// plain reports whether nothing keeps e from being in a group: a dead letter that is delivered
// again and what the filter failed on stand for themselves.
func (e *Entry) plain() bool { return e.Letter == 0 && (e.Progress == nil || e.Progress.Dead == nil) }

type links struct{ prev, next *Entry }

// The lists that an entry is in: see Lane, Queue and changes.
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
