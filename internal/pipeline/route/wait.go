package route

import (
	"context"
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// ErrStopped is returned once the pipeline takes no more deltas.
var ErrStopped = errors.New("the pipeline is stopped")

// diskPatience is how long a source waits for the disk to write the deltas of a route.
const diskPatience = 5 * time.Second

// WaitRoom applies back-pressure to a source:
//   - The route has room: it returns at once.
//   - overflow: block: it waits until there is room.
//   - Other policies: it waits for diskPatience while the disk is behind, so that a short burst of
//     changes is not coalesced.
//
// The error is that of ctx, or [ErrStopped].
func (r *Route) WaitRoom(ctx context.Context, d *event.Delta) error {
	if !r.backlog.room.mayBeFull() {
		return nil
	}
	var patience *time.Timer
	for {
		// Taken before the check, so that no exchange of the routes is missed between the two.
		yield := r.env.Yield.wait()
		room, blocks := r.mustWait(d)
		if room == nil {
			return nil
		}
		var late <-chan time.Time
		if !blocks {
			if patience == nil {
				patience = time.NewTimer(diskPatience)
				defer patience.Stop()
			}
			late = patience.C
		}
		select {
		case <-room:
		case <-yield: // the routes are about to be exchanged, which must not wait for room
			return nil
		case <-late:
			r.noteSlowDisk()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-r.env.Stopping:
			return ErrStopped
		}
	}
}

// mustWait returns a channel that is closed when there is room for d; nil: d need not wait. blocks:
// it waits without a time limit.
func (r *Route) mustWait(d *event.Delta) (_ <-chan struct{}, blocks bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := &r.backlog.room
	if !room.full() {
		return nil, false
	}
	if blocks = r.Generation().Overflow == spec.Block; blocks {
		// Before the route and its downstream routes are ready, additions and listed objects pass:
		// they may belong to the very list that one of the routes waits for, at the start or after
		// a restart of the watch.
		if (!r.chainReady() || r.awaits() != nil) && (d.Op == event.Added || transit.Of(d).Listed) {
			return nil, false
		}
	} else if room.diskLate || !room.diskAllows() {
		return nil, false
	}
	return room.wait(), blocks
}

// noteSlowDisk records that the disk is too slow: no source waits for it again until it has caught
// up.
func (r *Route) noteSlowDisk() {
	r.mu.Lock()
	first := !r.backlog.room.diskLate
	r.backlog.room.diskLate = true
	r.mu.Unlock()
	if first {
		r.Generation().Log().Warn("the disk is slower than the backlog grows; queue.overflow applies until the disk has caught up")
	}
}

// AwaitRoom waits until the backlog is less than half full, regardless of its Overflow. It may wait
// for ever for a route that is paused or removed: the caller cancels it then. The error is that of
// ctx, or [ErrStopped].
func (r *Route) AwaitRoom(ctx context.Context) error {
	for {
		r.mu.Lock()
		if !r.backlog.room.overHalf() {
			r.mu.Unlock()
			return ctx.Err()
		}
		belowHalf := r.backlog.room.waitBelowHalf()
		r.mu.Unlock()
		select {
		case <-belowHalf:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.env.Stopping:
			return ErrStopped
		}
	}
}
