package backlog

import (
	"math"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Unplaced is an entry without a lane: its filter and key are still to be evaluated.
type Unplaced struct {
	Delta  *event.Delta
	Unseen bool // the filter has not decided yet

	entry *queue.Entry
}

// NextUnplaced returns the first entry without a lane; nil: there is none.
func (b *Backlog) NextUnplaced() *Unplaced {
	e := b.Queue.Head.NextUnplaced()
	if e == nil {
		return nil
	}
	standIn(b, e)
	return &Unplaced{e.Delta.Recalled(), e.Unseen, e}
}

// standIn lets a later state stand for the restored one of a Secret, of which the disk has no
// value: that of the next change if there is one, so that no delta shows an earlier state than the
// one before, and else that of the cache.
func standIn(b *Backlog, e *queue.Entry) {
	if !e.Delta.LacksNew() || e.Delta.Event != nil || b.config.Cached.Object == nil {
		return
	}
	now := b.config.Cached.Object(e.Delta) // before the queue, which has each change that the cache has had
	if next := queue.NextState(&b.Queue, e); next != nil {
		now = next
	}
	if d := e.Delta.StandIn(now); d != e.Delta {
		b.Queue.SetDelta(e, d)
	}
}

// AssignLane assigns a lane to an entry by a verdict of the present configuration.
func (b *Backlog) AssignLane(next *Unplaced, v *spec.Verdict, filtered bool) {
	e := next.entry
	switch {
	case filtered && e.Counted: // the route does not see the object any more
		b.config.Count.Dropped.Inc()
		b.Queue.Remove(e)
	case filtered:
		b.config.Count.Filtered.Inc()
		b.Queue.Remove(e)
	case next.Unseen && v.Err == nil && b.Rules.Holds.Wants(next.Delta):
		b.Queue.Remove(e)
		b.HoldDelete(e.Delta, v.Lane)
	case b.limiter.suppresses(e, v):
		b.Queue.Remove(e)
	default:
		// the last one that was read from disk may exceed the bytes
		b.overflow(b.place(e, v), queue.Bound{Entries: b.config.Capacity, Bytes: math.MaxInt64})
	}
}

// HoldDelete holds a delete. Beyond the capacity only the identity of the object is kept.
func (b *Backlog) HoldDelete(d *event.Delta, lane queue.Key) {
	if h := &b.Rules.Holds; h.Len() >= b.config.Capacity || h.Bytes() >= b.config.Bytes {
		d = queue.IdentityOnly(d)
	}
	b.Rules.Holds.Hold(d, b.config.HoldKey(d, lane), b.now())
}
