package pipeline

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// waitRoom waits while the route is full, if it is one that makes its sources wait.
func (r *route) waitRoom(ctx context.Context, d *event.Delta) error {
	if r.cfg.Overflow != Block {
		return nil
	}
	for {
		yield := r.parent.yielding()
		r.mu.Lock()
		// Before it is ready, and all that it feeds, additions and what was found in a list pass: it may be the list of the very source
		// that one of them waits for, the first one or the one after a restart.
		if !r.full() || !r.readyThrough() && (d.Op == event.Added || d.Listed) {
			r.mu.Unlock()
			return nil
		}
		if r.room == nil {
			r.room = make(chan struct{})
		}
		room := r.room
		r.mu.Unlock()
		select {
		case <-room:
		case <-yield: // the routes are about to be exchanged, which must not take until there is room
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-r.parent.stopping:
			return ErrStopped
		}
	}
}

// overflow does what the route's overflow says if there is more in the head than its capacity. newest is nil if it was folded away.
func (r *route) overflow(newest *entry) {
	if newest == nil || r.q.headLen() <= r.cfg.Capacity {
		return
	}
	switch r.cfg.Overflow {
	case Fold:
		if newest.stage == waiting {
			newest.delta = shrink(newest.delta)
		}
		r.fold(newest)
	case DropOldest:
		r.dropOldest()
	case Block: // Admit waited
	}
}

// fold folds what waits for the object of e in the stage of e, and reports whether that came to anything: e may be gone then. What is
// given up before the filter saw it counts as matched: what came in is what went out or is owed.
func (r *route) fold(e *entry) bool {
	folded, uncounted := r.q.compact(e.object, e.stage)
	if folded == 0 {
		return false
	}
	r.count.folded.Add(float64(folded))
	r.count.matched.Add(float64(uncounted))
	return true
}

// dropOldest drops the oldest delta in memory that was never attempted.
func (r *route) dropOldest() {
	for _, st := range []stage{waiting, pending, spilled} {
		oldest := r.q.ages[st].head
		if oldest == nil {
			continue
		}
		if !oldest.counted {
			r.count.matched.Inc()
		}
		r.q.remove(oldest)
		r.count.dropped.Inc()
		r.count.errors("overflow").Inc()
		return
	}
}
