package route

import (
	"context"
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
)

// readAgain is the pause after a failed read.
const readAgain = time.Second

// signalTailReader is called after each change of the queue: there may be room in the head for a
// part of the tail.
func (r *Route) signalTailReader() {
	if !r.backlog.room.low() {
		return
	}
	select {
	case r.tailRoom <- struct{}{}:
	default:
	}
}

// readTail moves the tail into the head, as far as there is room, until ctx is done.
func (r *Route) readTail(ctx context.Context) {
	pause := time.NewTimer(forever)
	defer pause.Stop()
	for ctx.Err() == nil {
		if part, n, ok := r.nextTailPart(); ok {
			pending, err := r.env.Store.ReadRoute(r.Generation().ID, checkpoint.Part(part))
			if r.takeTailPart(part, n, pending, err) {
				continue
			}
			r.Generation().Count().Errors("read_back").Inc()
			if r.env.may(r.Generation(), "read back") {
				r.Generation().Log().Error("the backlog on disk cannot be read; the route waits, and the read is retried every second", slog.Any("err", err))
			}
			pause.Reset(readAgain)
		}
		select {
		case <-r.tailRoom:
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// nextTailPart returns the next part to read, and the number of deltas that are only on disk. It
// moves deltas that are in memory without reading.
func (r *Route) nextTailPart() (part queue.Part, n int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backlog.exchanging() {
		return part, 0, false
	}
	part, n, moved, ok := r.backlog.nextPart()
	if moved {
		r.tailRead()
	}
	return part, n, ok
}

// takeTailPart appends a part that was read to the head, when n deltas were only on disk. It
// returns false if err is set.
func (r *Route) takeTailPart(part queue.Part, n int, pending []checkpoint.Pending, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.backlog.exchanging() { // after a change of the generation it is read again
		r.backlog.queue.Tail.EndReading()
		return err == nil
	}
	if lost := r.backlog.readBack(part, n, pending); lost > 0 {
		r.Generation().Log().Error("deltas lost: the state file has fewer deltas than are pending", slog.Int("lost", lost))
	}
	r.tailRead()
	return true
}

// tailRead wakes the leader, which assigns lanes to the deltas of the tail.
func (r *Route) tailRead() {
	r.changed()
	r.workers.leader.Signal()
}
