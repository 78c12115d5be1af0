package route

import (
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// Room computes whether a backlog has room for another delta, and wakes the callers that wait for
// it.
type Room struct {
	DiskLate bool // a source timed out while the disk was taking the deltas on their way to it
	Stalled  bool // an upstream route timed out while it waited for room

	queue *queue.Queue
	env   *Storage
	bound queue.Bound // in memory
	disk  int64       // bytes on disk
	of    account     // in the bounds of the owner of the route

	busy      atomic.Bool   // full, as of the last change
	freed     chan struct{} // closed when there is room again; nil: no caller waits
	belowHalf chan struct{} // closed when the route is no more than half full; nil: no caller waits
}

func (r *Room) configure(c *spec.Settings) {
	r.bound, r.disk = c.Bound(), c.Disk
	r.of.limits = &r.env.Shares
	r.of.move(r.env.Shares.of(c.ID))
}

// Bound returns the present bound of the deltas in memory: that of the route, without what its
// owner has no room for. It permits at least one delta, so that each route goes on.
func (r *Room) Bound() queue.Bound {
	return queue.Bound{Entries: r.bound.Entries, Bytes: r.of.within(r.bound.Bytes)}
}

// MayBeFull reports, without the lock of the route, whether there was no room after the last
// change. It spares most deltas the lock.
func (r *Room) MayBeFull() bool { return r.busy.Load() }

// first returns those of the first deltas on disk that the bound in memory permits.
func (r *Room) first(pending []checkpoint.Pending) []checkpoint.Pending {
	left := r.Bound().Bytes
	for i, o := range pending {
		if left <= 0 {
			return pending[:i]
		}
		left -= queue.Bytes(o.Delta)
	}
	return pending
}

// Full reports whether there is no room for another delta, so that the overflow policy applies.
// Spilled deltas still in memory share the capacity of the head.
func (r *Room) Full() bool {
	if r.onDisk() {
		return false
	}
	head, tail, bound := &r.queue.Head, &r.queue.Tail, r.Bound()
	return tail.Len() > 0 || head.Len()+tail.Spilled() >= bound.Entries || head.Bytes()+tail.Bytes() >= bound.Bytes
}

// OverHalf reports whether the route is more than half full, so that deltas that can wait should.
// The bound of the owner does not count: the other routes do not tell when they are done.
func (r *Room) OverHalf() bool { return r.queue.Tailed() || r.queue.Head.OverHalf(r.bound) }

// Low reports whether the head has room for deltas of the tail.
func (r *Room) Low() bool { return r.queue.Tailed() && !r.queue.Head.OverHalf(r.Bound()) }

// HeadFull reports whether the head has no room for another delta.
func (r *Room) HeadFull() bool { return r.queue.Head.Full(r.Bound()) }

// spills reports whether a new delta goes to the tail.
func (r *Room) spills() bool {
	return r.queue.Tailed() || r.disk > 0 && r.HeadFull() && r.onDisk()
}

// onDisk reports whether more deltas may go to disk: within the bounds, and not faster than the
// disk writes.
func (r *Room) onDisk() bool { return r.queue.Tail.Bytes() < r.env.InFlight && r.DiskAllows() }

// DiskAllows reports whether the disk may hold more, for this route, its owner, and all routes.
func (r *Room) DiskAllows() bool {
	t := &r.queue.Tail
	return t.OnDisk()+t.Bytes() < r.disk && r.of.excess()+t.Bytes() < 0 && (r.env.MaxDisk == 0 || r.env.OnDisk.Load()+t.Bytes() < r.env.MaxDisk)
}

// fits reports whether the route may keep onDisk bytes on disk, with no further deltas on their
// way.
func (r *Room) fits(onDisk int64) bool {
	return onDisk <= r.disk && r.of.excess() <= 0 && (r.env.MaxDisk == 0 || r.env.OnDisk.Load() <= r.env.MaxDisk)
}

// Leave returns the room of a removed route to its owner.
func (r *Room) Leave() { r.of.move(nil) }

// Wait returns a channel that is closed when there is room again.
func (r *Room) Wait() <-chan struct{} {
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

// WaitBelowHalf returns a channel that is closed when the route is no more than half full.
func (r *Room) WaitBelowHalf() <-chan struct{} {
	if r.belowHalf == nil {
		r.belowHalf = make(chan struct{})
	}
	return r.belowHalf
}

// update is called after each change of the queue.
func (r *Room) update() {
	r.of.count(r.queue.Head.Bytes() + r.queue.Tail.Bytes())
	full := r.Full()
	r.busy.Store(full)
	if !full && (r.freed != nil || r.Stalled) {
		r.free()
	}
	if r.belowHalf != nil && !r.OverHalf() {
		close(r.belowHalf)
		r.belowHalf = nil
	}
}

// reopen wakes all waiting callers, so that they check again.
func (r *Room) reopen() {
	r.free()
	r.busy.Store(r.Full())
}

// free wakes the callers that wait for room.
func (r *Room) free() {
	r.Stalled = false
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}
