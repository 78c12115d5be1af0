package queue

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Progress is the state of an entry from its first attempt on. While the entry is taken it belongs
// to the worker; the queue keeps it with the entry and reuses its memory.
type Progress struct {
	Attempts int   // failed calls of the handler
	Tries    int   // writes that found a sink unavailable, or failed to store a dead letter
	Outdated int   // times that a sink found its events made of an outdated state
	Again    bool  // the handler makes its events again, of the present state
	Alone    bool  // a batch with it failed: it is handled alone
	Dead     error // rejected for good: onFailure applies
	Handled  bool
	Events   []event.Event // made by the handler
	Left     []Remaining   // by sink; nil: all events at all sinks
	Closed   uint64        // the sinks that are done with it, one bit each
	PassedOn bool          // one of them is a route
	Outcome  Outcome

	// The result of this pass, for the worker of the batch.
	State State
	Delay time.Duration
}

// Remaining is the events that a sink has not taken yet.
type Remaining struct {
	Events   []int // indexes into Progress.Events; nil: all
	Rejected error // the reason why another event was rejected for good
}

// Outcome is the final result of an entry, the worst of several sinks.
type Outcome uint8

// The outcomes.
const (
	Delivered Outcome = iota
	Dropped
	DeadLettered
)

// State is the result of one pass of an entry.
type State uint8

// The states.
const (
	Open  State = iota
	Later       // still pending, and retried after the delay
	Done
)

func (p *Progress) reset() {
	clear(p.Events)
	*p = Progress{Events: p.Events[:0]}
}

// MakeAgain ends the pass of an entry whose events are outdated: the handler makes them again.
func (p *Progress) MakeAgain() {
	if p.Again {
		clear(p.Events)
		p.Again, p.Handled, p.Events, p.Left = false, false, p.Events[:0], nil
	}
}

// holdsUp reports whether the entries behind it in its lane must not share a batch with it.
func (p *Progress) holdsUp(inOrder bool) bool {
	return p.Attempts > 0 && !p.Handled || p.Tries > 0 && !inOrder
}

// Empty reports whether an entry ended without an event: the handler made none or failed, or the
// entry was too old.
func (p *Progress) Empty() bool {
	if p.Handled {
		return len(p.Events) == 0 && p.Outcome == Dropped
	}
	return p.Outcome != Delivered
}

// Failures returns the number of failed attempts, at the handler or at a sink.
func (p *Progress) Failures() int { return p.Attempts + p.Tries }

// AppendEvents appends the events that a sink has still to take.
func (p *Progress) AppendEvents(events []event.Event, sink int) []event.Event {
	if p.Left == nil || p.Left[sink].Events == nil {
		return append(events, p.Events...)
	}
	for _, i := range p.Left[sink].Events {
		events = append(events, p.Events[i])
	}
	return events
}
