package route

import (
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// chunk is the number of deltas that are read back at a time.
const chunk = 1000

// spill adds d behind the head. unseen: the filter has not decided yet.
func (b *backlog) spill(d *event.Delta, unseen bool) {
	full := b.room.full()
	limit := queue.Limit{Later: !unseen && b.limiter.later(d)}
	e := b.add(queue.Item{Delta: d, From: queue.Live, Tail: true, Unseen: unseen, Limit: limit})
	if !unseen {
		b.settings.Count().Matched.Inc()
		e.Counted = true
	}
	if b.queue.Tail.Bytes() > b.env.InFlight/2 && b.settings.Disk > 0 {
		b.env.Soon()
	}
	if full && b.settings.Overflow == spec.Coalesce {
		b.queue.SetDelta(e, queue.IdentityOnly(d))
	}
	coalesces := b.coalesces() || full && b.settings.Overflow == spec.Coalesce
	if coalesces && b.coalesce(e) {
		return
	}
	if full && b.settings.Overflow == spec.DropOldest {
		b.dropFor(e)
	}
}

// saved is called after a cut, with the bytes on disk of the route and of all routes of its owner.
// It drops from memory the entries that are on disk. If the route
// exceeds its bound on disk, it keeps them, so that they are coalesced further and written again.
func (b *backlog) saved(onDisk, owned int64) {
	b.rules.Saved()
	b.room.of.saved(owned)
	b.settings.Count().Disk.Set(float64(onDisk))
	b.queue.Written(onDisk, b.room.fits(onDisk), checkpoint.Whole)
	b.room.diskLate = b.room.diskLate && b.queue.Tail.Bytes() >= b.env.InFlight
}

// nextPart returns the next part of the tail to read, and the number of deltas that are only on
// disk. ok is false if there is none, or no room for it. Spilled deltas that are still in memory
// move to the head without reading; moved reports whether any did.
func (b *backlog) nextPart() (part queue.Part, n int, moved, ok bool) {
	if moved = b.queue.Promote(b.room.bound()); moved {
		b.allPlaced = false
	}
	free, head := b.room.bound(), &b.queue.Head
	free.Entries, free.Bytes = min(chunk, free.Entries-head.Len()), free.Bytes-head.Bytes()
	part, n, ok = b.queue.Tail.NextPart(free)
	return part, n, moved, ok
}

// readBack appends a part that was read to the head, when n deltas were only on disk. It returns
// the number of deltas that the disk has lost.
func (b *backlog) readBack(part queue.Part, n int, pending []checkpoint.Pending) (lost int) {
	lost = b.queue.ReadBack(part, n, numbers(pending), func(i int) { b.readmit(pending[i]) })
	b.allPlaced = false
	return lost
}

// numbers returns the fields of deltas on disk that the queue needs.
func numbers(pending []checkpoint.Pending) []queue.Read {
	read := make([]queue.Read, len(pending))
	for i, o := range pending {
		read[i] = queue.Read{Number: o.ID, Seen: o.Delta.Seen}
	}
	return read
}
