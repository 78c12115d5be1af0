package queue

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Progress is what is known of an entry once it was attempted. While the entry is taken it belongs
// to the worker; the queue keeps it with the entry and uses its memory again.
type Progress struct {
	Attempts int   // of the handler, that failed
	Tries    int   // of the sinks, that found one unavailable, or of the dead letters
	Alone    bool  // it failed in a batch of several: it is handled by itself
	Dead     error // rejected for good: onFailure is what is left
	Handled  bool
	Events   []event.Event // what the handler made of it
	Left     []Remaining   // by sink; nil: all events at all sinks
	Closed   uint64        // the sinks that are done with it, a bit each
	PassedOn bool          // one of them is a route
	Outcome  Outcome

	// The result of this pass, for the worker that has the batch.
	State State
	Delay time.Duration
}

// Remaining is what a sink did not take yet.
type Remaining struct {
	Events   []int // indexes into Progress.Events; nil: all
	Rejected error // why one of the others was rejected for good
}

// Outcome is how an entry ended; of several sinks, the worst.
type Outcome uint8

// The outcomes.
const (
	Delivered Outcome = iota
	Dropped
	DeadLettered
)

// State is how far an entry came in one pass.
type State uint8

// The states.
const (
	Open  State = iota
	Later       // it is still pending, and tried again after the delay
	Done
)

func (p *Progress) reset() {
	clear(p.Events)
	*p = Progress{Events: p.Events[:0]}
}

// holdsUp reports whether what is behind the entry in its lane should not be in a batch with it.
func (p *Progress) holdsUp(inOrder bool) bool {
	return p.Attempts > 0 && !p.Handled || p.Tries > 0 && !inOrder
}

// Empty reports whether an entry ended without an event: the handler made none, or failed, or it
// was too old to be handled.
func (p *Progress) Empty() bool {
	if p.Handled {
		return len(p.Events) == 0 && p.Outcome == Dropped
	}
	return p.Outcome != Delivered
}

// Failures returns how often an attempt failed, at the handler or at a sink.
func (p *Progress) Failures() int { return p.Attempts + p.Tries }

// AppendEvents appends what a sink has to get.
func (p *Progress) AppendEvents(events []event.Event, sink int) []event.Event {
	if p.Left == nil || p.Left[sink].Events == nil {
		return append(events, p.Events...)
	}
	for _, i := range p.Left[sink].Events {
		events = append(events, p.Events[i])
	}
	return events
}
