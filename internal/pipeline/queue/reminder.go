package queue

import (
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// CoalesceReminder keeps at most one pending reminder of a condition, the last one, and none behind
// a pending Entered, so that a receiver that was unavailable does not get all of them at once. e
// was just placed. It returns the entry that the caller must remove; nil: none.
func (q *Queue) CoalesceReminder(e *Entry) (goes *Entry) {
	before := e.links[byObject].prev
	if e.Delta.Repeat == 0 || e.Unseen || before == nil || !before.reminded(e) {
		return nil
	}
	stays, goes := e, before
	if before.Delta.Repeat == 0 {
		if before.Saved.Closed != 0 || before.Progress != nil && before.Progress.Closed != 0 {
			return nil
		}
		stays, goes = before, e
	}
	if suppressed := goes.Delta.Suppressed; suppressed > 0 {
		d := *stays.Delta
		d.Suppressed += suppressed
		q.SetDelta(stays, &d)
		q.Changes.Note(stays)
	}
	absorb(q, goes, stays, stays.Delta)
	return goes
}

// reminded reports whether e is the Entered that n repeats, or an earlier reminder of it, which no
// worker has and only its delivery is left.
func (e *Entry) reminded(n *Entry) bool {
	a, b := e.Delta, n.Delta
	switch {
	case a.Event != nil || b.Event != nil || a.Op != event.Entered || a.Began != b.Began || a.Object().UID() != b.Object().UID():
		return false
	case e.lane == nil || e.taken || e.Unseen || e.DeadLetter != 0 || e.group != nil:
		return false
	case e.Progress == nil:
		return true
	}
	return e.Progress.Dead == nil && !slices.ContainsFunc(e.Progress.Left, func(left Remaining) bool { return left.Rejected != nil })
}
