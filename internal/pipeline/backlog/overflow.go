package backlog

import (
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
)

// overflow applies the overflow policy if the head exceeds its capacity. newest is nil if it was
// coalesced.
func (b *Backlog) overflow(newest *queue.Entry) {
	if newest == nil || b.Queue.Head.Len() <= b.config.Capacity {
		return
	}
	switch b.config.Overflow {
	case spec.Coalesce:
		if newest.Stage() == queue.Waiting {
			b.Queue.SetDelta(newest, queue.IdentityOnly(newest.Delta))
		}
		b.coalesce(newest)
	case spec.DropOldest:
		b.dropOldest()
	case spec.Block: // Admit has waited
	}
}

// coalesce replaces the pending deltas of the object of e, in the stage of e, by their net change.
// It reports whether any were coalesced; e may have been removed then. Coalesced deltas that the
// filter has not seen count as matched, so that matched equals the sum of the results and the
// pending deltas.
func (b *Backlog) coalesce(e *queue.Entry) bool {
	coalesced, uncounted := b.Queue.Coalesce(e)
	if coalesced == 0 {
		return false
	}
	b.config.Count.Coalesced.Add(float64(coalesced))
	b.config.Count.Matched.Add(float64(uncounted))
	return true
}

// dropOldest drops the oldest delta in memory that was never attempted.
func (b *Backlog) dropOldest() {
	oldest := b.Queue.OldestUntried()
	if oldest == nil {
		return
	}
	if !oldest.Counted {
		b.config.Count.Matched.Inc()
	}
	oldest.Trace.Fail("the queue was full (overflow: dropOldest)")
	b.EndTrace(b.config, oldest, trace.Dropped)
	b.Queue.Remove(oldest)
	b.config.Count.Dropped.Inc()
	b.config.Count.Errors("overflow").Inc()
}

// replaceReminder coalesces a reminder that was just placed with the previous one. It reports
// whether e was removed.
func (b *Backlog) replaceReminder(e *queue.Entry) (gone bool) {
	goes := b.Queue.CoalesceReminder(e)
	if goes == nil {
		return false
	}
	if !goes.Counted {
		b.config.Count.Matched.Inc()
	}
	b.config.Count.Coalesced.Inc()
	b.Queue.Remove(goes)
	return goes == e
}
