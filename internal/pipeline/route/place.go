package route

import (
	"fmt"
	"math"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// unplaced is an entry without a lane: its filter and key are still to be evaluated.
type unplaced struct {
	Delta  *event.Delta
	Unseen bool // the filter has not decided yet

	entry *queue.Entry
}

// nextUnplaced returns the first entry without a lane; nil: there is none.
func (b *backlog) nextUnplaced() *unplaced {
	e := b.queue.Head.NextUnplaced()
	if e == nil {
		return nil
	}
	standIn(b, e)
	return &unplaced{e.Delta.Recalled(), e.Unseen, e}
}

// standIn lets a later state stand for the restored one of a Secret, of which the disk has no
// value: that of the next change if there is one, so that no delta shows an earlier state than the
// one before, and else that of the cache.
func standIn(b *backlog, e *queue.Entry) {
	if !e.Delta.LacksNew() || e.Delta.Event != nil || b.settings.Cached.Object == nil {
		return
	}
	now := b.settings.Cached.Object(e.Delta) // before the queue, which has each change that the cache has had
	if next := queue.NextState(&b.queue, e); next != nil {
		now = next
	}
	if d := e.Delta.StandIn(now); d != e.Delta {
		b.queue.SetDelta(e, d)
	}
}

// assignLane assigns a lane to an entry by a verdict of the present configuration.
func (b *backlog) assignLane(next *unplaced, v *spec.Verdict, filtered bool) {
	e := next.entry
	switch {
	case filtered && e.Counted: // the route does not see the object any more
		b.settings.Count().Dropped.Inc()
		b.queue.Remove(e)
	case filtered:
		b.settings.Count().Filtered.Inc()
		b.queue.Remove(e)
	case next.Unseen && v.Err == nil && b.holdDelete(e.Delta, v): // else v may have the reason
		b.queue.Remove(e)
	case b.limiter.suppresses(e, v):
		b.queue.Remove(e)
	default:
		// the last one that was read from disk may exceed the bytes
		b.overflow(b.place(e, v), queue.Bound{Entries: b.settings.Capacity, Bytes: math.MaxInt64})
	}
}

// holdDelete reports whether it holds d, which it does if d is a delete that the route holds.
// Beyond the capacity only the identity of the object is kept. If the owner has no room at all, it
// sets the error of the verdict, so that d becomes a dead letter.
func (b *backlog) holdDelete(d *event.Delta, v *spec.Verdict) bool {
	h := &b.rules.Holds
	switch {
	case !h.Wants(d):
		return false
	case h.Full():
		reason := lackOfObjects(b.settings.ID, &b.env.Shares)
		b.lacks.objects.note(reason, b.now())
		v.Err = fmt.Errorf("%w: %s", spec.ErrNoRoom, reason)
		return false
	case h.Len() >= b.settings.Capacity || h.Bytes() >= b.settings.Bytes || h.Heavy():
		d = queue.IdentityOnly(d)
	}
	h.Hold(d, b.settings.HoldKey(d, v.Lane), b.now())
	return true
}
