package route

import (
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
)

// overflow applies the overflow policy if the head exceeds a bound. newest is nil if it was
// coalesced.
func (b *backlog) overflow(newest *queue.Entry, bound queue.Bound) {
	if newest == nil || !b.queue.Head.Exceeds(bound, newest) {
		return
	}
	switch b.settings.Overflow {
	case spec.Coalesce:
		if newest.Stage() == queue.Waiting {
			b.queue.SetDelta(newest, queue.IdentityOnly(newest.Delta))
		}
		b.coalesce(newest)
	case spec.DropOldest:
		b.dropFor(newest)
	case spec.Block: // Admit has waited
	}
}

// coalesce replaces the pending deltas of the object of e, in the stage of e, by their net change.
// It reports whether any were coalesced; e may have been removed then. Coalesced deltas that the
// filter has not seen count as matched, so that matched equals the sum of the results and the
// pending deltas.
func (b *backlog) coalesce(e *queue.Entry) bool {
	coalesced, uncounted := b.queue.Coalesce(e)
	if coalesced == 0 {
		return false
	}
	b.settings.Count().Coalesced.Add(float64(coalesced))
	b.settings.Count().Matched.Add(float64(uncounted))
	return true
}

// dropFor drops the oldest delta in memory that was never attempted, and further ones as long as
// the bytes are at their limit and newest is larger than all of them.
func (b *backlog) dropFor(newest *queue.Entry) {
	head, tail := &b.queue.Head, &b.queue.Tail
	bound := b.room.bound()
	for bytes := newest.Bytes(); ; {
		oldest := b.queue.OldestUntried()
		if oldest == nil {
			return
		}
		if !oldest.Counted {
			b.settings.Count().Matched.Inc()
		}
		bytes -= oldest.Bytes()
		oldest.Trace.Fail("the queue was full (overflow: dropOldest)")
		b.endTrace(b.settings, oldest, trace.Dropped)
		b.queue.Remove(oldest)
		b.settings.Count().Dropped.Inc()
		b.settings.Count().Errors("overflow").Inc()
		if bytes <= 0 || head.Bytes()+tail.Bytes() < bound.Bytes {
			return
		}
	}
}

// replaceReminder coalesces a reminder that was just placed with the previous one. It reports
// whether e was removed.
func (b *backlog) replaceReminder(e *queue.Entry) (gone bool) {
	goes := b.queue.CoalesceReminder(e)
	if goes == nil {
		return false
	}
	if !goes.Counted {
		b.settings.Count().Matched.Inc()
	}
	b.settings.Count().Coalesced.Inc()
	b.queue.Remove(goes)
	return goes == e
}
