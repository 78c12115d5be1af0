package queue

import (
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// CoalesceReminder has at most one reminder of a condition wait for a sink, the last one, and none
// behind an Entered that no sink has yet: a receiver that was away does not get all of them at
// once. e was just placed. It returns which of two entries goes, which the caller removes; nil:
// none.
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
	return goes
}

// reminded reports whether e is an Entered that n reminds of, or an earlier reminder of that, which
// no worker has, and of which nothing but its delivery is left.
func (e *Entry) reminded(n *Entry) bool {
	a, b := e.Delta, n.Delta
	switch {
	case a.Op != event.Entered || a.Began != b.Began || a.Object().UID() != b.Object().UID():
		return false
	case e.lane == nil || e.taken || e.Unseen || e.Letter != 0 || e.group != nil:
		return false
	case e.Progress == nil:
		return true
	}
	return e.Progress.Dead == nil && !slices.ContainsFunc(e.Progress.Left, func(left Remaining) bool { return left.Rejected != nil })
}
