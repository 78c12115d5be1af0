// Package deliver brings a batch of deltas through the handler of a route to its sinks.
//
//	batch ──► handler ──► events ──► waves ──► sinks, each behind its circuit breaker
//	             │                                │
//	             └── rejected, too old ───────────┴──► dead letter, dropped, or the route is paused
//
// A [Batch] belongs to one worker, and the Progress of its entries with it. It takes no lock of the
// route: it reports, and asks for things, by the interface [Route]. What is not done with in the
// end is tried again after Progress.Delay.
package deliver

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Batch is the batch of a worker. Its memory is used for one batch after the other.
type Batch struct {
	cfg     *Config
	route   Route
	letters DeadLetterer
	entries []*queue.Entry // of a group: the last one alone
	group   group

	handled handling
	wave    wave
	failed  failures

	// a target is done with entries of the wave, and the checkpoint does not know it
	unreported bool
}

// New returns the Batch of a worker of a route.
func New(route Route, letters DeadLetterer) *Batch { return &Batch{route: route, letters: letters} }

// Handle begins a batch: the handler sees the entries that it has not seen yet. With what the
// context of the calls of the handler ends, the entries that it has are tried again.
func (b *Batch) Handle(ctx, handling context.Context, cfg *Config, entries []*queue.Entry) {
	b.cfg, b.unreported = cfg, false
	b.entries = b.group.join(entries)
	b.handle(ctx, handling)
}

// Deliver brings the events of the batch to the targets, as far as that is possible now, and ends
// the batch.
func (b *Batch) Deliver(ctx context.Context) {
	b.deliver(ctx)
	b.group.part()
	b.unreported = false
}

// Members returns those whose fate e shares: the group that it is the last of, or e alone, until
// the next call.
func (b *Batch) Members(e *queue.Entry) []*queue.Entry { return b.group.members(e) }

// Share gives the entries of a group the progress of their last one.
func (b *Batch) Share() { b.group.share() }

// report tells the checkpoint which targets are done with the entries of the wave. It is called
// before something that takes time: at its end the whole batch is reported.
func (b *Batch) report() {
	if !b.unreported {
		return
	}
	b.unreported = false
	if b.group.all != nil {
		b.group.share()
		b.route.Report(b.group.all)
		return
	}
	b.route.Report(b.wave.entries)
}

// keyed gives an event the key of its entry.
func keyed(e *queue.Entry, ev event.Event) event.Event {
	if e.Key().Source == "" {
		ev.Key = e.Key().Name
	}
	return ev
}
