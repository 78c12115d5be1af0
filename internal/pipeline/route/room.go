package route

import (
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// room computes whether a backlog has room for another delta, and wakes the callers that wait for
// it. New deltas fill the head in memory, then the tail on disk, then the overflow policy applies:
//
//	headFull     the head has no room
//	spills       a new delta goes to the tail: the head is full, or there is a tail already
//	mayGoToDisk  the tail may grow, within the bounds of the route, its owner and all routes
//	full         neither head nor tail has room: overflow
//	low          there is a tail, and the head is half empty: a part of the tail is read
//	overHalf     deltas that can wait, such as those of a resync, wait
type room struct {
	diskLate bool // a source timed out while the disk was taking the deltas on their way to it
	stalled  bool // an upstream route timed out while it waited for room

	queue *queue.Queue
	env   *Storage
	limit queue.Bound // in memory
	disk  int64       // bytes on disk
	of    account     // in the bounds of the owner of the route

	busy      atomic.Bool   // full, as of the last change
	freed     chan struct{} // closed when there is room again; nil: no caller waits
	belowHalf chan struct{} // closed when the route is no more than half full; nil: no caller waits
}

func (r *room) configure(c *spec.Settings) {
	r.limit, r.disk = c.Bound(), c.Disk
	r.of.limits = &r.env.Shares
	r.of.move(r.env.Shares.of(c.ID))
}

// bound returns the present bound of the deltas in memory: that of the route, without what its
// owner has no room for. It permits at least one delta, so that each route goes on.
func (r *room) bound() queue.Bound {
	return queue.Bound{Entries: r.limit.Entries, Bytes: r.of.within(r.limit.Bytes)}
}

// mayBeFull reports, without the lock of the route, whether there was no room after the last
// change. It spares most deltas the lock.
func (r *room) mayBeFull() bool { return r.busy.Load() }

// first returns those of the first deltas on disk that the bound in memory permits.
func (r *room) first(pending []checkpoint.Pending) []checkpoint.Pending {
	left := r.bound().Bytes
	for i, o := range pending {
		if left <= 0 {
			return pending[:i]
		}
		left -= queue.Bytes(o.Delta)
	}
	return pending
}

// full reports whether there is no room for another delta, so that the overflow policy applies.
// Spilled deltas still in memory share the capacity of the head.
func (r *room) full() bool {
	if r.mayGoToDisk() {
		return false
	}
	head, tail, bound := &r.queue.Head, &r.queue.Tail, r.bound()
	return tail.Len() > 0 || head.Len()+tail.Spilled() >= bound.Entries || head.Bytes()+tail.Bytes() >= bound.Bytes
}

// overHalf reports whether the route is more than half full, so that deltas that can wait should.
// The bound of the owner does not count: the other routes do not tell when they are done.
func (r *room) overHalf() bool { return r.queue.Tailed() || r.queue.Head.OverHalf(r.limit) }

// low reports whether the head has room for deltas of the tail.
func (r *room) low() bool { return r.queue.Tailed() && !r.queue.Head.OverHalf(r.bound()) }

// headFull reports whether the head has no room for another delta.
func (r *room) headFull() bool { return r.queue.Head.Full(r.bound()) }

// spills reports whether a new delta goes to the tail.
func (r *room) spills() bool {
	return r.queue.Tailed() || r.disk > 0 && r.headFull() && r.mayGoToDisk()
}

// mayGoToDisk reports whether more deltas may go to disk: within the bounds, and not faster than
// the disk writes.
func (r *room) mayGoToDisk() bool { return r.queue.Tail.Bytes() < r.env.InFlight && r.diskAllows() }

// diskAllows reports whether the disk may hold more, for this route, its owner, and all routes.
func (r *room) diskAllows() bool {
	t := &r.queue.Tail
	return t.OnDisk()+t.Bytes() < r.disk && r.of.excess()+t.Bytes() < 0 && (r.env.MaxDisk == 0 || r.env.OnDisk.Load()+t.Bytes() < r.env.MaxDisk)
}

// fits reports whether the route may keep onDisk bytes on disk, with no further deltas on their
// way.
func (r *room) fits(onDisk int64) bool {
	return onDisk <= r.disk && r.of.excess() <= 0 && (r.env.MaxDisk == 0 || r.env.OnDisk.Load() <= r.env.MaxDisk)
}

// leave returns the room of a removed route to its owner.
func (r *room) leave() { r.of.move(nil) }

// wait returns a channel that is closed when there is room again.
func (r *room) wait() <-chan struct{} {
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

// waitBelowHalf returns a channel that is closed when the route is no more than half full.
func (r *room) waitBelowHalf() <-chan struct{} {
	if r.belowHalf == nil {
		r.belowHalf = make(chan struct{})
	}
	return r.belowHalf
}

// update is called after each change of the queue.
func (r *room) update() {
	r.of.count(r.queue.Head.Bytes() + r.queue.Tail.Bytes())
	full := r.full()
	r.busy.Store(full)
	if !full && (r.freed != nil || r.stalled) {
		r.free()
	}
	if r.belowHalf != nil && !r.overHalf() {
		close(r.belowHalf)
		r.belowHalf = nil
	}
}

// reopen wakes all waiting callers, so that they check again.
func (r *room) reopen() {
	r.free()
	r.busy.Store(r.full())
}

// free wakes the callers that wait for room.
func (r *room) free() {
	r.stalled = false
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}
