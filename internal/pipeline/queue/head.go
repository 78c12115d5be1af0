package queue

import (
	"iter"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// deltaBytes is the size of an entry without the JSON of its objects and the data of its events.
const deltaBytes = 256

// Head is the entries of the head of a queue by stage, each in order of age.
type Head struct {
	ages  [Attempted + 1]list
	bytes int64 // of all entries
}

// Len returns the number of entries.
func (h *Head) Len() (n int) {
	for i := range h.ages {
		n += h.ages[i].len
	}
	return n
}

// Unplaced returns the number of entries without a lane.
func (h *Head) Unplaced() int { return h.ages[Pending].len + h.ages[Evaluating].len }

// Retried yields the attempted entries that are the first of their lanes, the oldest first.
func (h *Head) Retried() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e := h.ages[Attempted].head; e != nil; e = e.links[byAge].next {
			if e.lane.lane.head == e && !yield(e) {
				return
			}
		}
	}
}

// NextUnplaced returns the next entry without a lane, restored ones first, and moves it to the
// stage Evaluating, in which it is not coalesced with pending ones; nil: there is none.
func (h *Head) NextUnplaced() *Entry {
	if e := h.ages[Evaluating].head; e != nil {
		return e
	}
	e := h.ages[Pending].head
	if e != nil {
		h.setStage(e, Evaluating)
	}
	return e
}

// MarkAttempted protects a placed entry from being coalesced or dropped.
func (h *Head) MarkAttempted(e *Entry) { h.setStage(e, Attempted) }

// setStage moves an entry to a stage. An entry that is already there keeps its place, because the
// entries of an object are in order within a stage.
func (h *Head) setStage(e *Entry, to Stage) {
	if e.stage == to { // its age there counts from the first time
		return
	}
	h.ages[e.stage].remove(e, byAge)
	e.stage = to
	h.ages[to].push(e, byAge)
}

// add puts an entry into a stage, behind the others of its object.
func (h *Head) add(e *Entry, object *Lane, st Stage) {
	e.stage, e.object = st, object
	object.object.push(e, byObject)
	h.ages[st].push(e, byAge)
	e.weigh(&h.bytes)
}

// remove removes an entry, except from the list of its object.
func (h *Head) remove(e *Entry) {
	h.ages[e.stage].remove(e, byAge)
	h.bytes -= e.bytes
}

// oldest returns the time at which the oldest entry was seen; zero: there is none.
func (h *Head) oldest() (oldest time.Time) {
	for i := range h.ages {
		if e := h.ages[i].head; e != nil && (oldest.IsZero() || e.Since.Before(oldest)) {
			oldest = e.Since
		}
	}
	return oldest
}

// oldestUntried returns the oldest entry that was never attempted and is not being evaluated; nil:
// there is none.
func (h *Head) oldestUntried() *Entry {
	if e := h.ages[Waiting].head; e != nil {
		return e
	}
	return h.ages[Pending].head
}

// all yields all entries, those of one object in order.
func (h *Head) all() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for st := Attempted; st > Spilled; st-- {
			for e := h.ages[st].head; e != nil; e = e.links[byAge].next {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Bound is the number of entries that a head may have, and the bytes that they may take. The last
// entry may exceed Bytes, so that each one fits into an empty head.
type Bound struct {
	Entries int
	Bytes   int64
}

// Bytes returns the bytes of memory that the entry takes, see [Head.Weigh].
func (e *Entry) Bytes() int64 { return e.bytes }

// Bytes returns the bytes of memory that a delta takes in an entry, with both of its objects.
func Bytes(d *event.Delta) int64 { return (&Entry{Delta: d}).size() }

// Bytes returns the bytes that the entries take, as of the last change of each.
func (h *Head) Bytes() int64 { return h.bytes }

// Full reports whether a head has no room for another entry.
func (h *Head) Full(b Bound) bool { return h.Len() >= b.Entries || h.bytes >= b.Bytes }

// Exceeds reports whether a head had no room when newest was added.
func (h *Head) Exceeds(b Bound, newest *Entry) bool {
	return h.Len() > b.Entries || h.bytes-newest.bytes >= b.Bytes
}

// OverHalf reports whether a head is more than half full.
func (h *Head) OverHalf(b Bound) bool { return 2*h.Len() > b.Entries || 2*h.bytes > b.Bytes }

// Weigh counts the bytes of an entry again, after its delta or its events have changed. No worker
// may have the entry, unless it has no events yet.
func (h *Head) Weigh(e *Entry) { e.weigh(&h.bytes) }

// weigh counts the bytes of e as a part of those in of.
func (e *Entry) weigh(of *int64) {
	before := e.bytes
	e.bytes = e.size()
	*of += e.bytes - before
}

// size returns the bytes of memory that an entry takes: those of its objects and events. The old
// object does not count if the entry before, of the same object, has it as the new one.
func (e *Entry) size() int64 {
	d, n := e.Delta, deltaBytes
	if d.New != nil {
		n += len(d.New.JSON())
	}
	if before := e.links[byObject].prev; d.Old != nil && (before == nil || before.Delta.New != d.Old) {
		n += len(d.Old.JSON())
	}
	if d.Event != nil {
		n += len(d.Event.Data)
	}
	if e.Progress != nil {
		for i := range e.Progress.Events {
			n += len(e.Progress.Events[i].Data)
		}
	}
	return int64(n)
}
