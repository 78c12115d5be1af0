package backlog

import (
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// Room says whether a backlog has room for one more delta, and who waits for it.
type Room struct {
	DiskLate bool // a source waited in vain for the disk to take the deltas on their way to it
	Stalled  bool // an upstream route waited for room in vain

	queue    *queue.Queue
	env      *Env
	capacity int   // deltas in memory
	disk     int64 // bytes on disk

	busy   atomic.Bool   // full, as of the last change
	freed  chan struct{} // closed when there is room again; nil: none waits
	calmed chan struct{} // closed when the route is not laden any more; nil: none waits
}

func (r *Room) configure(c *spec.Config) { r.capacity, r.disk = c.Capacity, c.Disk }

// MayBeFull reports, without the lock of the route, whether there was no room after the last
// change: most deltas need not take the lock to find that there is some.
func (r *Room) MayBeFull() bool { return r.busy.Load() }

// Full reports whether there is no room for a delta that comes now: overflow decides. Deltas in
// memory that wait for their turn to leave the tail have the room that the head leaves: without a
// disk that takes it, too.
func (r *Room) Full() bool {
	if r.onDisk() {
		return false
	}
	return r.queue.Tail.Len() > 0 || r.queue.Head.Len()+r.queue.Tail.Spilled() >= r.capacity
}

// Laden reports whether the route has so much that a delta that can wait should.
func (r *Room) Laden() bool { return r.queue.Tailed() || 2*r.queue.Head.Len() > r.capacity }

// Low reports whether the head has room for the beginning of the tail.
func (r *Room) Low() bool { return r.queue.Tailed() && 2*r.queue.Head.Len() <= r.capacity }

// spills reports whether a delta that comes now goes to the tail.
func (r *Room) spills() bool {
	return r.queue.Tailed() || r.disk > 0 && r.queue.Head.Len() >= r.capacity && r.onDisk()
}

// onDisk reports whether more may go to disk: within the bounds, and not faster than the disk takes
// it.
func (r *Room) onDisk() bool { return r.queue.Tail.Bytes() < r.env.InFlight && r.DiskAllows() }

// DiskAllows reports whether the disk may hold more, of the route and of all routes.
func (r *Room) DiskAllows() bool {
	t := &r.queue.Tail
	return t.OnDisk()+t.Bytes() < r.disk && (r.env.MaxDisk == 0 || r.env.OnDisk.Load()+t.Bytes() < r.env.MaxDisk)
}

// fits reports whether the route may keep so much on disk, which has taken all that was on its way.
func (r *Room) fits(onDisk int64) bool {
	return onDisk <= r.disk && (r.env.MaxDisk == 0 || r.env.OnDisk.Load() <= r.env.MaxDisk)
}

// Wait returns a channel that is closed when there is room again.
func (r *Room) Wait() <-chan struct{} {
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

// WaitCalm returns a channel that is closed when the route is no longer laden.
func (r *Room) WaitCalm() <-chan struct{} {
	if r.calmed == nil {
		r.calmed = make(chan struct{})
	}
	return r.calmed
}

// update is called after each change of the queue.
func (r *Room) update() {
	full := r.Full()
	r.busy.Store(full)
	if !full && (r.freed != nil || r.Stalled) {
		r.free()
	}
	if r.calmed != nil && !r.Laden() {
		close(r.calmed)
		r.calmed = nil
	}
}

// reopen lets everyone who waits look again.
func (r *Room) reopen() {
	r.free()
	r.busy.Store(r.Full())
}

// free tells those who wait that there is room.
func (r *Room) free() {
	r.Stalled = false
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}
