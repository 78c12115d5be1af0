package route

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

const (
	// roomWait is how long a worker waits for room in a downstream route.
	roomWait = time.Second
	// roomRetry is the pause before the worker tries that route again.
	roomRetry = time.Second
)

// offer is an entry as input of a downstream route.
type offer struct {
	target     *Route      // nil: the entry was not evaluated yet
	generation *Generation // the generation of the target that evaluated the entry
	wanted     []input
	filtered   int
}

// input is an event as a delta of the downstream route, with the verdict of that route.
type input struct {
	delta   *event.Delta
	verdict verdict
}

// handover is the result of one attempt to hand an offer over.
type handover uint8

const (
	handed    handover = iota
	noRoom             // the channel of the room is closed when there is room
	exchanged          // the target was reconfigured or replaced: evaluate again
	abandoned          // the worker was abandoned
)

// PassOn implements deliver.Chain: it hands all events of an entry to the downstream route of a
// target, or none. While that route has no room, a patient worker waits for roomWait, unless
// another worker has timed out before. The error contains the time of the next attempt.
func (w *worker) PassOn(ctx context.Context, sink int, e *queue.Entry, patient bool) error {
	var f offer
	var patience *time.Timer
	for {
		// A reload may replace the target or its settings at any time: the offer is evaluated again
		// until it is enqueued under the settings that evaluated it.
		target := w.route.env.Downstream(w.generation.Sinks[sink].Route)
		if target == nil {
			return w.holdBack(ctx, sink, e, "does not exist, or takes no more events")
		}
		if target != f.target || target.Generation() != f.generation {
			f = target.offerOf(ctx, e)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		result, room := w.handOver(sink, e, &f)
		switch {
		case result == handed:
			if given := w.route.env.Given; given != nil {
				given(w.generation.Name, w.generation.Sinks[sink], e.Progress.Events)
			}
			return nil
		case result == exchanged:
			continue
		case result == abandoned, !patient, room == nil:
			return w.holdBack(ctx, sink, e, "has no room")
		case patience == nil:
			patience = time.NewTimer(roomWait)
			defer patience.Stop()
		}
		// Only the first worker waits in vain; the others learn of it by stallUpstream.
		if !w.await(ctx, room, patience.C) {
			target.stallUpstream()
			return w.holdBack(ctx, sink, e, "has no room")
		}
	}
}

// offerOf evaluates the filter and the keys of a downstream route for the events of an entry. No
// lock is held.
func (r *Route) offerOf(ctx context.Context, e *queue.Entry) offer {
	c := r.Generation()
	f := offer{target: r, generation: c}
	for i := range e.Progress.Events {
		d := chain.Delta(e.Delta, &e.Progress.Events[i])
		if !slices.Contains(c.Ops, d.Op) {
			continue
		}
		m := filters.Match{Verdict: filters.Unready}
		if c.IsReady() {
			m = c.Table().Evaluate(ctx, 0, d)
		}
		if m.Verdict == filters.Filtered {
			f.filtered++
			continue
		}
		f.wanted = append(f.wanted, input{d, c.Verdict(ctx, d, m)})
	}
	return f
}

// handOver enqueues the offer at its target and closes the entry for the sink. A cut sees both or
// neither. Without room it returns a channel that is closed when there is room; nil: see takeOffer.
func (w *worker) handOver(sink int, e *queue.Entry, f *offer) (_ handover, room <-chan struct{}) {
	name, chains := w.generation.Sinks[sink].Route, &w.route.env.Chains
	chains.RLock()
	defer chains.RUnlock()
	switch {
	case w.route.env.Downstream(name) != f.target, f.target.Generation() != f.generation:
		return exchanged, nil
	case w.abandoned:
		return abandoned, nil
	}
	if ok, room := f.target.takeOffer(f); !ok {
		return noRoom, room
	}
	e.Progress.Closed |= 1 << sink
	e.Progress.PassedOn = true
	w.delivery.Share()
	w.route.mu.Lock()
	defer w.route.mu.Unlock()
	delete(w.route.heldBack, name)
	for _, m := range w.delivery.Members(e) {
		w.route.backlog.queue.Changes.Report(m)
	}
	chains.handed.Add(1)
	return handed, nil
}

// await waits for room, as long as the generation of the worker is current.
func (w *worker) await(ctx context.Context, room <-chan struct{}, patience <-chan time.Time) bool {
	select {
	case <-room:
		return true
	case <-ctx.Done():
	case <-w.generation.current.Done():
	case <-patience:
	}
	return false
}

// holdBack returns the error of an entry that cannot be handed over now, and pauses hand-overs to
// its downstream route for a while.
func (w *worker) holdBack(ctx context.Context, sink int, e *queue.Entry, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := w.generation.Sinks[sink]
	err := &deliver.RefusedError{Sink: s.Name, Until: w.route.now().Add(roomRetry), Why: fmt.Sprintf("route %q %s", s.Route, why)}
	w.route.mu.Lock()
	if w.generation == w.route.Generation() {
		w.route.heldBack[s.Route] = err.Until
	}
	w.route.mu.Unlock()
	w.generation.Count().Errors("held_back").Inc()
	w.Complain("held back: the downstream route takes no events", e.Delta, s.Name, err)
	return err
}

// Chains are the hand-overs of events between routes. A route read-locks them while it hands an
// event to another one; the holder of the write lock sees no hand-over half done. The lock is taken
// before the locks of the pipeline and of the routes, never under one of them.
type Chains struct {
	sync.RWMutex

	handed atomic.Uint64 // the number of hand-overs

	mu       sync.Mutex
	passedOn []passedOn // since the last cut
	inFlight []passedOn // at the last cut, which is not on disk yet
}

// passedOn is a redelivered dead letter whose events were handed to a downstream route.
type passedOn struct {
	route  *Route
	letter uint64
}

// Anywhere reports whether look is true for any route. A delta on its way from one route to another
// is seen in one of the two: look is called again if there was a hand-over in the meantime.
func (c *Chains) Anywhere(look func() bool) bool {
	for {
		before := c.handed.Load()
		if look() {
			return true
		}
		if c.handed.Load() == before {
			return false
		}
	}
}

// keep keeps dead letters until their events are on disk.
func (c *Chains) keep(r *Route, deadLetters []uint64) {
	if len(deadLetters) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, letter := range deadLetters {
		c.passedOn = append(c.passedOn, passedOn{r, letter})
	}
}

// Cut is called with the chains locked, after all routes have handed over their changes.
func (c *Chains) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight, c.passedOn = append(c.inFlight, c.passedOn...), nil
}

// Saved removes the dead letters whose events are on disk.
func (c *Chains) Saved() {
	c.mu.Lock()
	saved := c.inFlight
	c.inFlight = nil
	c.mu.Unlock()
	byRoute := make(map[*Route][]uint64)
	for _, p := range saved {
		byRoute[p.route] = append(byRoute[p.route], p.letter)
	}
	for r, deadLetters := range byRoute {
		r.removeLetters(background(), deadLetters)
	}
}
