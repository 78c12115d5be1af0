package route

import (
	"context"
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// ErrStopped is returned once the pipeline takes no more deltas.
var ErrStopped = errors.New("the pipeline is stopped")

// diskPatience is how long a source waits for the disk to take what a route has on its way to it.
const diskPatience = 5 * time.Second

// WaitRoom waits while the route is full, if it is one that makes its sources wait. For other
// routes it waits while the disk is behind: changes come in bursts, and a disk that is busy for a
// moment is no reason to coalesce them. The error is ctx's, or [ErrStopped].
func (r *Route) WaitRoom(ctx context.Context, d *event.Delta) error {
	if !r.backlog.Room.MayBeFull() {
		return nil
	}
	var patience *time.Timer
	for {
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
		case <-yield: // the routes are about to be exchanged, which must not take until there is room
			return nil
		case <-late:
			r.giveUpDisk()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-r.env.Stopping:
			return ErrStopped
		}
	}
}

// mustWait returns a channel that is closed when there is room for d; nil: it need not wait. blocks
// says that it waits however long it takes.
func (r *Route) mustWait(d *event.Delta) (_ <-chan struct{}, blocks bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := &r.backlog.Room
	if !room.Full() {
		return nil, false
	}
	if blocks = r.Config().Overflow == spec.Block; blocks {
		// Before it and its downstream routes are ready, additions and what was found in a list
		// pass: it may be the list of the very source that one of them waits for, the first one or
		// the one after a restart.
		if !r.links.ready() && (d.Op == event.Added || d.Transit().Listed) {
			return nil, false
		}
	} else if room.DiskLate || !room.DiskAllows() {
		return nil, false
	}
	return room.Wait(), blocks
}

// giveUpDisk notes that the disk takes nothing: no source waits for it again before it has made
// room.
func (r *Route) giveUpDisk() {
	r.mu.Lock()
	first := !r.backlog.Room.DiskLate
	r.backlog.Room.DiskLate = true
	r.mu.Unlock()
	if first {
		r.Config().Log.Warn("the disk takes the backlog of the route more slowly than it grows: queue.overflow decides until it has caught up")
	}
}

// AwaitRoom waits until the backlog has less than half of what its memory may hold, whatever its
// Overflow is. It may wait for ever for a route that is paused, or that has left: the caller ends
// it then. The error is ctx's, or [ErrStopped].
func (r *Route) AwaitRoom(ctx context.Context) error {
	for {
		r.mu.Lock()
		if !r.backlog.Room.Laden() {
			r.mu.Unlock()
			return ctx.Err()
		}
		calm := r.backlog.Room.WaitCalm()
		r.mu.Unlock()
		select {
		case <-calm:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.env.Stopping:
			return ErrStopped
		}
	}
}
