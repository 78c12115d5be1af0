// Package deliver brings a batch of deltas through the handler of a route to its sinks.
//
//	batch ──► handler ──► events ──► waves ──► sinks, each behind its circuit breaker
//	             │                                │
//	             └── rejected, too old ───────────┴──► dead letter, dropped, or the route is paused
//
// A [Batch] belongs to one worker, and so does the Progress of its entries. It never takes the lock
// of the route: it uses [Progress] and [Chain]. Entries that are not done in the end are retried
// after Progress.Delay.
package deliver

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Batch is the batch of a worker. Its memory is reused for the next batch.
type Batch struct {
	env      Env
	settings *spec.Settings
	targets  []Target       // of the sinks of settings, in their order
	entries  []*queue.Entry // of a group: only the last one
	group    group
	trace    tracing

	handled handling
	wave    wave
	failed  failures

	// a target is done with entries of the wave, and the checkpoint does not have that yet
	unreported bool
}

// New returns the Batch of a worker.
func New(env Env) *Batch { return &Batch{env: env} }

// Handle begins a batch with the settings of its route, with which it also ends, and their targets:
// it calls the handler with the entries that were not handled yet. If the context handling ends,
// these entries are retried.
func (b *Batch) Handle(ctx, handling context.Context, settings *spec.Settings, targets []Target, entries []*queue.Entry) {
	b.settings, b.targets, b.unreported = settings, targets, false
	b.entries = b.group.join(entries)
	b.trace.begin(b, entries)
	b.handle(ctx, handling)
}

// Deliver writes the events of the batch to the targets, as far as possible now, and ends the
// batch.
func (b *Batch) Deliver(ctx context.Context) {
	b.deliver(ctx)
	forgetCalls(b.entries)
	b.group.part()
	b.unreported = false
}

// Members returns the entries that share the result of e: the group whose last entry is e, or e
// alone. The slice is valid until the next call.
func (b *Batch) Members(e *queue.Entry) []*queue.Entry { return b.group.members(e) }

// Share copies the progress of the last entry of a group to the others.
func (b *Batch) Share() { b.group.share() }

// report updates the checkpoint with the targets that are done with the entries of the wave. It is
// called before slow operations; at the end the whole batch is reported.
func (b *Batch) report() {
	if !b.unreported {
		return
	}
	b.unreported = false
	if b.group.all != nil {
		b.group.share()
		b.env.Progress.Report(b.group.all)
		return
	}
	b.env.Progress.Report(b.wave.entries)
}

// keyed sets the key of an event to the key of its entry, and its trace to that of the entry.
func keyed(e *queue.Entry, ev event.Event) event.Event {
	if e.Key().Source == "" {
		ev.Key = e.Key().Name
	}
	ev.TraceParent = e.Trace.TraceParent()
	return ev
}
