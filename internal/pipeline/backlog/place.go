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
	if e := b.Queue.Head.NextUnplaced(); e != nil {
		return &Unplaced{e.Delta, e.Unseen, e}
	}
	return nil
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
		b.HoldDelete(next.Delta, v.Lane)
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
