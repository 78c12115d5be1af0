package queue

import (
	"iter"
	"time"
)

// Head is the entries of the head of a queue by stage, each in order of age.
type Head struct{ ages [Attempted + 1]list }

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
