package deliver

import (
	"context"
	"errors"
	"math/bits"
	"slices"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// wave is the entries whose events are written to each target in one call.
type wave struct {
	entries []*queue.Entry
	cursors []int // in the batch: the next entry of each lane
	nexts   []int // likewise, while a wave is built
	events  []event.Event
	spans   []span
	stopped []*queue.Lane // lanes of which a downstream route refused an entry
}

// span is the range of an entry's events in a write.
type span struct {
	entry      *queue.Entry
	start, end int
}

// deliver writes the entries of the batch to the sinks, in waves. If all sinks keep the order of a
// key within a write, a batch is one wave, and so one write for each sink. Otherwise a write
// contains at most one delta of each lane, because a sink may take a later event after it refused
// an earlier one.
func (b *Batch) deliver(ctx context.Context) {
	b.wave.cursors = b.wave.cursors[:0]
	for i, e := range b.entries {
		if i == 0 || !b.entries[i-1].SameLane(e) {
			b.wave.cursors = append(b.wave.cursors, i)
		}
	}
	for len(b.wave.cursors) > 0 {
		b.failUnsent(ctx)
		going := b.wave.cursors[:0]
		for _, i := range b.wave.cursors {
			if i = b.advance(i); i >= 0 {
				going = append(going, i)
			}
		}
		if b.wave.cursors = going; len(going) > 0 {
			b.report() // of the previous wave
			b.fillWave()
			b.write(ctx)
		}
	}
}

// fillWave builds a wave of the entries at the cursors and the entries behind them that may share a
// write: the first of each lane, then the second of each. A sink that has one event of a key in
// flight at a time can so have as many events in flight as possible.
func (b *Batch) fillWave() {
	b.wave.entries = b.wave.entries[:0]
	b.wave.nexts = append(b.wave.nexts[:0], b.wave.cursors...)
	for len(b.wave.nexts) > 0 {
		more := b.wave.nexts[:0]
		for _, i := range b.wave.nexts {
			b.wave.entries = append(b.wave.entries, b.entries[i])
			if i = b.behind(i); i >= 0 {
				more = append(more, i)
			}
		}
		b.wave.nexts = more
	}
}

// behind returns the entry of the lane behind i that may share its write; -1: there is none. An
// entry that was rejected before it reached a sink is processed after all entries before it are
// done.
func (b *Batch) behind(i int) int {
	lane := b.entries[i].Lane()
	// for sinks, an empty key is no key: see event.Event.OrderKey
	if !b.settings.WritesInOrder() || b.entries[i].Key() == (queue.Key{}) {
		return -1
	}
	for i++; i < len(b.entries) && b.entries[i].Lane() == lane; i++ {
		switch work := b.entries[i].Progress; {
		case work.State != queue.Open || !work.Handled || work.Dead != nil:
			return -1
		case len(work.Events) > 0:
			return i
		}
	}
	return -1
}

// failUnsent applies onFailure to the next entries of each lane that were rejected before they
// reached a sink.
func (b *Batch) failUnsent(ctx context.Context) {
	for _, i := range b.wave.cursors {
		lane := b.entries[i].Lane()
		for ; i < len(b.entries) && b.entries[i].Lane() == lane; i++ {
			e := b.entries[i]
			ended := e.Progress.State == queue.Done || e.Progress.State == queue.Open && e.Progress.Handled && len(e.Progress.Events) == 0
			if e.Progress.State == queue.Open && e.Progress.Dead != nil {
				b.failed.all = append(b.failed.all, failure{e, -1, e.Progress.Dead})
			} else if !ended {
				break
			}
		}
	}
	if len(b.failed.all) == 0 {
		return
	}
	b.report() // writing dead letters can be slow
	state := queue.Later
	if b.applyFailurePolicy(ctx) {
		state = queue.Done
	}
	for i := range b.failed.all {
		b.failed.all[i].entry.Progress.State = state
	}
	b.failed.end()
}

// advance returns the first entry of the lane, from i on, that has events to deliver; -1 if the
// lane is at its end or has to wait.
func (b *Batch) advance(i int) int {
	lane := b.entries[i].Lane()
	for ; i < len(b.entries) && b.entries[i].Lane() == lane; i++ {
		e := b.entries[i]
		switch {
		case e.Progress.State == queue.Done:
			continue
		case e.Progress.State == queue.Later:
			return -1
		case !e.Progress.Handled:
			return -1
		case len(e.Progress.Events) > 0:
			return i
		default:
			e.Progress.Outcome = queue.Dropped // by the handler
		}
		e.Progress.State = queue.Done
	}
	return -1
}

// write writes the wave to each target that is not done with it, and to routes last, because it may
// wait for room there.
func (b *Batch) write(ctx context.Context) {
	for i, t := range b.targets {
		if t.Sink != nil {
			b.writeTo(ctx, i, t.Sink)
		}
	}
	for i, t := range b.targets {
		if t.Sink == nil {
			b.passOn(ctx, i)
		}
	}
	for _, e := range b.wave.entries {
		e.Progress.State = queue.Later
		if bits.OnesCount64(e.Progress.Closed) == len(b.targets) {
			e.Progress.State = queue.Done
		}
		e.Progress.MakeAgain()
	}
}

// writeTo writes the wave to one sink.
func (b *Batch) writeTo(ctx context.Context, s int, sink *Sink) {
	// Collect the events that this sink has not taken yet: after a refusal that may be some of an
	// entry.
	b.wave.events, b.wave.spans = b.wave.events[:0], b.wave.spans[:0]
	for _, e := range b.wave.entries {
		if e.Progress.Closed&(1<<s) != 0 {
			continue
		}
		if err := b.tooOld(e); err != nil {
			b.failed.all = append(b.failed.all, failure{e, s, err})
			continue
		}
		start := len(b.wave.events)
		if b.wave.events = e.Progress.AppendEvents(b.wave.events, s); len(b.wave.events) == start {
			b.recordResult(ctx, s, e, nil) // only its dead letter is still to be written
			continue
		}
		b.wave.spans = append(b.wave.spans, span{e, start, len(b.wave.events)})
	}
	if len(b.wave.spans) > 0 {
		b.report() // a write may be slow, and the other sinks are done with earlier entries
		var errs []error
		if b.permits() {
			start := b.trace.now()
			errs = sink.write(ctx, b.wave.events, b.wave.spans[0].end)
			b.unreported = true
			b.trace.written(&b.wave, sink.name, start, errs)
		} else {
			errs = same(errNotPermitted, len(b.wave.events))
		}
		for _, sp := range b.wave.spans {
			if errs == nil {
				b.recordResult(ctx, s, sp.entry, nil)
			} else {
				b.recordResult(ctx, s, sp.entry, errs[sp.start:sp.end])
			}
		}
		clear(b.wave.events)
	}
	b.failRejected(ctx, s)
}

// recordResult processes the results of a sink for the events of an entry; nil: the sink took all.
func (b *Batch) recordResult(ctx context.Context, sink int, e *queue.Entry, errs []error) {
	work, count := e.Progress, b.settings.Count().Events[sink]
	// before is the rest of an earlier attempt, after the rest of this one. A rejection is final
	// for its event, and the reason is kept until the last event of the entry has a result.
	var before, after queue.Remaining
	if work.Left != nil {
		before = work.Left[sink]
	}
	after.Rejected = before.Rejected
	var refusal error
	if errs == nil {
		n := len(before.Events)
		if before.Events == nil {
			n = len(work.Events)
		}
		count.Delivered.Add(float64(n))
	}
	for i, err := range errs {
		switch {
		case err == nil:
			count.Delivered.Inc()
		case plugins.ClassOf(err) == plugins.Rejected:
			count.Rejected.Inc()
			b.settings.Count().Errors("rejected").Inc()
			after.Rejected = err
		default:
			refusal = err
			if before.Events != nil {
				i = before.Events[i]
			}
			after.Events = append(after.Events, i)
		}
	}
	// In this order: a sink that pauses its route keeps everything; what can be retried is retried
	// before anything becomes a dead letter.
	if halt := stops(errs); halt != nil {
		b.keepRemaining(e, sink, after)
		b.settings.Count().Errors("paused").Inc()
		b.env.Progress.Pause(e.Delta, b.targets[sink].Name, halt, true)
		return
	}
	if refusal != nil && !b.expired(ctx, e, refusal) && retries(e, refusal) {
		b.postpone(ctx, e, sink, after, refusal)
		return
	}
	if refusal != nil {
		after.Rejected = refusal
	}
	if after.Rejected != nil {
		b.failed.all = append(b.failed.all, failure{e, sink, after.Rejected})
		return
	}
	work.Closed |= 1 << sink
}

// stops returns the first of the errors that pauses the route regardless of onFailure.
func stops(errs []error) error {
	for _, err := range errs {
		if plugins.ClassOf(err) == plugins.Paused {
			return err
		}
	}
	return nil
}

// failRejected applies onFailure to the entries that the sink rejected for good.
func (b *Batch) failRejected(ctx context.Context, sink int) {
	if len(b.failed.all) == 0 {
		return
	}
	b.report()
	ok := b.applyFailurePolicy(ctx)
	b.unreported = true
	for i := range b.failed.all {
		if f := &b.failed.all[i]; ok {
			f.entry.Progress.Closed |= 1 << sink
		} else {
			b.keepRemaining(f.entry, sink, queue.Remaining{Events: []int{}, Rejected: f.reason})
		}
	}
	b.failed.end()
}

// postpone keeps the events that a sink could not take now.
func (b *Batch) postpone(ctx context.Context, e *queue.Entry, sink int, left queue.Remaining, err error) {
	b.keepRemaining(e, sink, left)
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errNotPermitted) {
		e.Progress.Delay = max(e.Progress.Delay, permitRetry)
		return
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		e.Progress.Delay = max(e.Progress.Delay, refused.Until.Sub(b.env.Clock.Now()))
		return
	}
	b.settings.Count().Events[sink].Retried.Add(float64(len(left.Events)))
	b.settings.Count().Errors("unavailable").Inc()
	e.Progress.Tries++
	delay := b.settings.Retry.Delay(e.Progress.Tries)
	if e.Progress.Again {
		delay = b.settings.Retry.Delay(1) // the state changes because another write succeeded
	}
	e.Progress.Delay = max(e.Progress.Delay, delay, plugins.RetryAfter(err))
}

func (b *Batch) keepRemaining(e *queue.Entry, sink int, left queue.Remaining) {
	if e.Progress.Left == nil {
		e.Progress.Left = make([]queue.Remaining, len(b.targets))
	}
	e.Progress.Left[sink] = left
}

// passOn enqueues the wave in the downstream route of a target.
func (b *Batch) passOn(ctx context.Context, sink int) {
	b.report()
	// One wait for room per wave: after it the others are tried, and held back at once.
	patient := true
	b.wave.stopped = b.wave.stopped[:0]
	for _, e := range b.wave.entries {
		if e.Progress.Closed&(1<<sink) != 0 || slices.Contains(b.wave.stopped, e.Lane()) {
			continue
		}
		if err := b.undeliverable(e, sink); err != nil {
			b.failed.all = append(b.failed.all, failure{e, sink, err})
			continue
		}
		refusal := b.env.Chain.PassOn(ctx, sink, e, patient)
		switch {
		case refusal == nil:
			b.trace.forwarded(e, b.targets[sink].Name)
			b.settings.Count().Events[sink].Delivered.Add(float64(len(e.Progress.Events)))
		case b.expired(ctx, e, refusal):
			b.failed.all = append(b.failed.all, failure{e, sink, refusal})
		default:
			patient = false
			// there may be room by now, and entries behind it must not overtake
			b.wave.stopped = append(b.wave.stopped, e.Lane())
			b.postpone(ctx, e, sink, queue.Remaining{}, refusal)
		}
	}
	b.failRejected(ctx, sink)
}

// undeliverable returns an error for an entry that must not be passed on: it is too old, or its
// dead letter could not be written before.
func (b *Batch) undeliverable(e *queue.Entry, sink int) error {
	if e.Progress.Left != nil && e.Progress.Left[sink].Rejected != nil {
		return e.Progress.Left[sink].Rejected
	}
	return b.tooOld(e)
}
