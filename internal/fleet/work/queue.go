package work

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// itemID identifies an event of a route. While an event is in flight, a second Write of it waits
// for the result of the first.
type itemID struct{ route, target, event string }

// item is an event on its way to the stream.
type item struct {
	id    itemID
	sink  *Sink
	key   string
	body  []byte
	again bool // redelivered

	// guarded by transfers.mu
	owner *writing // nil: its Write has ended before the result was known
	place int      // in owner.items
	sent  bool     // it may be stored
	done  bool
	err   error
}

// transfers are the events that are on their way to the stream.
type transfers struct {
	wake chan struct{} // has a token if there is something to do

	mu      sync.Mutex
	queue   []*item
	items   map[itemID]*item // in flight, or with a result that no Write has asked for
	settled int              // the number of the latter
	stopped bool
	failing error         // the stream does not take events
	stuck   chan struct{} // closed while failing is set
}

// writing is a Write that waits for its items.
type writing struct {
	items []*item
	errs  []error
	left  int
	done  chan struct{}
}

var (
	errNotAnswered = errors.New("there was no answer in time")
	errStopped     = errors.New("the leader stops, or has lost the Lease")
)

// errRetired refuses an event of a route that loses its workers. It does not count as a failure of
// the sink.
var errRetired = plugins.Postpone(errors.New("the route is about to lose its workers"), time.Second)

// busy reports whether events of a route are on their way to the stream.
func (o *transfers) busy(route string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.ContainsFunc(o.queue, func(it *item) bool { return it.id.route == route && !it.done }) {
		return true
	}
	for id, it := range o.items {
		if id.route == route && it.sent && !it.done {
			return true
		}
	}
	return false
}

// maxSettled bounds the results that are kept for a later Write. A result that is dropped leads to
// a duplicate.
const maxSettled = 10_000

// refusal returns the reason why an item is not queued; nil: it is. o.mu is held.
func (o *transfers) refusal(it *item) error {
	if o.stopped {
		return errStopped
	}
	if it.sink.retired {
		return errRetired
	}
	return o.failing
}

// add queues the items of a Write. The channel is closed when the stream does not take them.
func (o *transfers) add(w *writing) (stuck <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.left = len(w.items)
	if w.left == 0 {
		close(w.done)
	}
	for i, it := range w.items {
		known := o.items[it.id]
		if known != nil && known.owner == nil { // of a Write that did not wait
			known.owner, known.place, w.items[i] = w, i, known
			if known.done {
				o.settled--
				o.finish(known, known.err)
			}
			continue
		}
		it.owner, it.place = w, i
		if refusal := o.refusal(it); refusal != nil {
			o.finish(it, refusal)
			continue
		}
		o.queue = append(o.queue, it)
		if known == nil {
			o.items[it.id] = it
		}
	}
	o.kick()
	return o.stuck
}

// finish sets the result of an item. o.mu is held.
func (o *transfers) finish(it *item, err error) {
	it.done, it.err = true, err
	keep := it.owner == nil && err == nil // a later Write asks for it
	if !keep && o.items[it.id] == it {
		delete(o.items, it.id)
	}
	if w := it.owner; w != nil {
		w.errs[it.place] = err
		if w.left--; w.left == 0 {
			close(w.done)
		}
	}
	if keep {
		if o.settled++; o.settled > maxSettled {
			o.forget()
		}
	}
}

// forget drops the results that no Write has asked for. o.mu is held.
func (o *transfers) forget() {
	maps.DeleteFunc(o.items, func(_ itemID, it *item) bool { return it.done })
	o.settled = 0
}

// withdraw takes the items of a Write out of the queue that were not sent yet.
func (o *transfers) withdraw(w *writing, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancel(w, err)
}

// cancel is withdraw. o.mu is held.
func (o *transfers) cancel(w *writing, err error) {
	removed := false
	for _, it := range w.items {
		if it.owner == w && !it.sent && !it.done {
			o.finish(it, err)
			removed = true
		}
	}
	if removed {
		o.queue = slices.DeleteFunc(o.queue, func(it *item) bool { return it.done })
	}
}

// end ends a Write and returns its result.
func (o *transfers) end(w *writing) []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	why := o.failing
	if why == nil {
		why = errNotAnswered
	}
	o.cancel(w, why)
	failed := false
	for i, it := range w.items {
		if it.owner == w && !it.done {
			it.owner, w.errs[i] = nil, why
		}
		if w.errs[i] != nil {
			failed = true
			if plugins.ClassOf(w.errs[i]) == plugins.Failed {
				w.errs[i] = unavailable(w.errs[i])
			}
		}
	}
	if !failed {
		return nil
	}
	return w.errs
}

func (o *transfers) kick() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// fail makes the sinks unavailable; nil: available. o.mu is held.
func (o *transfers) fail(err error) {
	if err == nil && o.failing != nil && !o.stopped {
		o.failing, o.stuck = nil, make(chan struct{})
	}
	if err != nil && o.failing == nil {
		o.failing = err
		close(o.stuck)
	}
}
