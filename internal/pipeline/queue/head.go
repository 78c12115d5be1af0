package queue

import (
	"iter"
	"time"
)

// Head is the entries of the head of a queue by their stages, the oldest of each first.
type Head struct{ ages [Attempted + 1]list }

// Len returns how many entries there are.
func (h *Head) Len() (n int) {
	for i := range h.ages {
		n += h.ages[i].len
	}
	return n
}

// Unplaced returns how many entries have no lane.
func (h *Head) Unplaced() int { return h.ages[Pending].len + h.ages[Settling].len }

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

// Unsettled returns the next entry without a lane, restored ones first, in a stage in which nothing
// else touches it; nil: there is none.
func (h *Head) Unsettled() *Entry {
	if e := h.ages[Settling].head; e != nil {
		return e
	}
	e := h.ages[Pending].head
	if e != nil {
		h.setStage(e, Settling)
	}
	return e
}

// MarkAttempted keeps a placed entry from being coalesced or dropped.
func (h *Head) MarkAttempted(e *Entry) { h.setStage(e, Attempted) }

// setStage keeps the place of an entry that is in the stage already: within a stage the entries of
// an object are in order.
func (h *Head) setStage(e *Entry, to Stage) {
	if e.stage == to { // its age there is that of the first time
		return
	}
	h.ages[e.stage].remove(e, byAge)
	e.stage = to
	h.ages[to].push(e, byAge)
}

// add puts an entry into a stage, behind those of its object.
func (h *Head) add(e *Entry, object *Lane, st Stage) {
	e.stage, e.object = st, object
	object.object.push(e, byObject)
	h.ages[st].push(e, byAge)
}

// oldest returns when the oldest entry was seen; zero: there is none.
func (h *Head) oldest() (oldest time.Time) {
	for i := range h.ages {
		if e := h.ages[i].head; e != nil && (oldest.IsZero() || e.Since.Before(oldest)) {
			oldest = e.Since
		}
	}
	return oldest
}

// oldestUntried returns the oldest entry that was never attempted, and is not being asked about;
// nil: there is none.
func (h *Head) oldestUntried() *Entry {
	if e := h.ages[Waiting].head; e != nil {
		return e
	}
	return h.ages[Pending].head
}

// all yields all entries, in the order of those of one object.
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
