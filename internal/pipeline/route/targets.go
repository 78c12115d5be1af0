package route

import (
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// sinkStates returns the state of the breakers and the downstream routes. It is called under the
// lock.
func (r *Route) sinkStates(now time.Time) (all queue.Sinks) {
	c := r.Generation()
	for i, t := range c.targets {
		var down bool
		var at time.Time
		var changed <-chan struct{}
		if t.Sink != nil {
			down, at, changed = t.Sink.State()
		} else if len(r.heldBack) > 0 {
			at = r.heldBack[c.Sinks[i].Route]
			down = at.After(now)
		}
		if !down {
			return queue.Sinks{}
		}
		if !all.Down || at.Before(all.Probe) {
			all.Probe, all.Changed = at, changed
		}
		all.Down = true
	}
	return all
}

// heldBy returns the name of a downstream route without room; empty: there is none. The lock is
// held.
func (r *Route) heldBy() string {
	if r.backlog.queue.Len() == 0 {
		return ""
	}
	for _, s := range r.Generation().Sinks {
		if _, held := r.heldBack[s.Route]; held {
			return s.Route
		}
	}
	return ""
}

// takeOffer enqueues an offer of an upstream route if there is room for one more delta. Otherwise
// it returns a channel that is closed when there is room, or nil if a worker has timed out, so that
// no further worker waits.
func (r *Route) takeOffer(f *offer) (ok bool, room <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, b := r.Generation(), r.backlog
	if len(f.wanted) > 0 && c.Overflow != spec.DropOldest && b.room.full() {
		if b.room.stalled {
			return false, nil
		}
		return false, b.room.wait()
	}
	c.Count().Filtered.Add(float64(f.filtered))
	for i := range f.wanted {
		b.append(f.wanted[i].delta, &f.wanted[i].verdict)
	}
	r.changed()
	return true, nil
}

// stallUpstream records that a worker of an upstream route timed out: no worker waits until there
// is room again.
func (r *Route) stallUpstream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog.room.stalled = r.backlog.room.full()
}

// chainReady reports whether the route and all its downstream routes are ready.
func (r *Route) chainReady() bool {
	if !r.Generation().IsReady() {
		return false
	}
	for _, s := range r.Generation().Sinks {
		if next := r.env.Downstream(s.Route); next != nil && next != r && !next.chainReady() {
			return false
		}
	}
	return true
}

// Stands reports whether the route cannot make progress: it is paused, not ready, or all its
// pending deltas wait for room in a route that cannot make progress.
func (r *Route) Stands() bool {
	c := r.Generation()
	r.mu.Lock()
	stands := r.paused.on() || !r.backlog.allPlaced && r.awaits() != nil
	r.mu.Unlock()
	if stands {
		return true
	}
	var behind uint64 // the targets that are routes without progress
	for i, s := range c.Sinks {
		if next := r.env.Downstream(s.Route); next != nil && next != r && next.Stands() {
			behind |= 1 << i
		}
	}
	down := r.leftByDrain()
	return behind|down != 0 && r.blockedBy(behind, down)
}

// Moving reports whether the route has pending deltas that it can process.
func (r *Route) Moving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog
	return b.queue.Len() > 0 && !r.paused.on() && (b.allPlaced || r.awaits() == nil) && !b.allDebouncing()
}

// leftByDrain returns the sinks, one bit each, that a drain does not wait for: unavailable ones, if
// their pending deltas are on disk.
func (r *Route) leftByDrain() (down uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.backlog.draining || !r.backlog.queue.Changes.On {
		return 0
	}
	for i, t := range r.Generation().targets {
		if t.Sink != nil && t.Sink.Status().Open {
			down |= 1 << i
		}
	}
	return down
}

// blockedBy reports whether no pending delta can proceed while these targets take nothing:
// downstream routes and unavailable sinks, one bit each.
func (r *Route) blockedBy(routes, down uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, c := r.backlog, r.Generation()
	for i, s := range c.Sinks {
		if _, held := r.heldBack[s.Route]; !held {
			routes &^= 1 << i // it had room at the last attempt
		}
	}
	// A pending delta can proceed only at the other targets. Anything that may still need one of
	// them, or whose targets are not known yet, is progress.
	blocked := routes | down
	all := uint64(1)<<len(c.Sinks) - 1
	busy, lanes := len(r.workers.busy) > 0, &b.queue.Lanes
	switch {
	case b.exchanging():
		return false
	case !busy && down == all: // all targets are unavailable sinks: no batch is taken
		return true
	case busy: // a batch ends, and may close a target
		return false
	case blocked == 0 || b.queue.Head.Unplaced() > 0: // the filter may drop an unplaced entry
		return false
	case lanes.Ready() > 0 && blocked != all: // it was not tried at the other targets
		return false
	case lanes.Gated() || lanes.Debouncing() > 0: // time, or the disk, makes them ready
		return false
	case b.queue.Tailed() && !b.room.headFull(): // more deltas are read from disk
		return false
	}
	for e := range b.queue.Head.Retried() {
		if e.Saved.Closed|blocked != all {
			return false
		}
	}
	return true
}
