package informer

import (
	"context"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// resync puts every cached object through again, for one source, each time its period has passed. The deltas go the way of all
// others, one at a time in the order of the watch, so none overtakes a change of its object.
func (w *Watch) resync(ctx context.Context, s *source) {
	tick := time.NewTicker(s.Resync)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		round := time.Now() // the same for all, see event.NewID
		for o := range w.store.All() {
			if !w.sync(ctx, s, o.Key(), round) {
				return
			}
		}
	}
}

// sync puts one object through as it is by now.
func (w *Watch) sync(ctx context.Context, s *source, key event.Key, round time.Time) bool {
	w.order.Lock()
	defer w.order.Unlock()
	if !slices.Contains(*w.sources.Load(), s) {
		return false // it is no source of the watch any more
	}
	o := w.store.Get(key)
	if o == nil {
		return true
	}
	w.commits, w.wanted = w.commits[:0], w.wanted[:0]
	if !w.admit(ctx, s, change{op: event.Sync, now: o}, round) {
		return false
	}
	w.cut.Lock()
	if w.ledger != nil {
		w.ledger.hold(o, w.wanted)
	}
	for _, commit := range w.commits {
		commit()
	}
	w.cut.Unlock()
	s.deltas[event.Sync].Inc()
	return true
}
