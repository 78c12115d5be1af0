package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/route"
)

// Restore restores the backlog of the route of an id after a restart, from the sum of the changes
// that [Pipeline.Dirty] returned. Call it before Start and before the first Admit, at most once for
// each route; restored deltas precede all admitted ones. pending is the first part of the backlog,
// or all of it, and backlog its total size: the rest is read from Config.Store later.
//
// A restored delta:
//   - counts as attempted: it is never coalesced or dropped by the overflow policy
//   - is delivered to the sinks that were not done with it, and to new sinks of the route; if all
//     sinks were done with it, it is dropped
//   - skips the filter if it had passed it; if the filter was not evaluated or failed, it is
//     evaluated now
//   - gets its key evaluated again; if the key fails, a delta that had passed the filter is ordered
//     by its object
//
// The error is about a missing route, a pipeline that has started, or an inconsistent backlog; then
// nothing is restored.
func (p *Pipeline) Restore(id string, pending []checkpoint.Pending, backlog checkpoint.Backlog) error {
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	r := p.now.Load().byID(id)
	switch {
	case r == nil:
		return fmt.Errorf("route %q: its backlog cannot be restored: there is no such route", id)
	case p.life.cancel != nil:
		return fmt.Errorf("route %q: its backlog cannot be restored: the pipeline has started", id)
	}
	if err := r.Restore(pending, backlog); err != nil {
		return fmt.Errorf("route %q: its backlog cannot be restored: %w", r.Settings().Name, err)
	}
	return nil
}

// Dirty returns the changes of the backlogs since the last call: deltas that were added, coalesced,
// attempted without success, or completed at a sink, and the numbers of those that are no longer
// pending. A delta that was added and removed between two calls leaves no trace. The caller keeps
// the result until it is written. A route without changes is omitted.
//
// It may be called at any time, also after Close. It visits the routes one after another. If the
// caller holds the cut locks of all sources, the result is consistent: it belongs to one moment,
// and an event that a route handed to another is pending at exactly one of them. Without a [Store]
// there are no changes.
func (p *Pipeline) Dirty() []checkpoint.RouteCut {
	var cuts []checkpoint.RouteCut
	p.shared.Chains.Lock()
	defer p.shared.Chains.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Concat(p.removed, p.now.Load().routes) {
		cut := r.Dirty()
		if len(cut.Put) == 0 && len(cut.Removed) == 0 && len(cut.Rules) == 0 {
			continue
		}
		if i := slices.IndexFunc(cuts, func(c checkpoint.RouteCut) bool { return c.Name == cut.Name }); i >= 0 {
			cuts[i].Put, cuts[i].Removed = append(cuts[i].Put, cut.Put...), append(cuts[i].Removed, cut.Removed...)
			cuts[i].Rules = append(cuts[i].Rules, cut.Rules...)
			continue
		}
		cuts = append(cuts, cut)
	}
	p.removed = slices.DeleteFunc(p.removed, (*route.Route).Retire)
	p.shared.Chains.Cut()
	return cuts
}

// Saved is called when everything that [Pipeline.Dirty] has returned is on disk. backlog returns
// the bytes on disk of the route of an id, of all routes of its owner, and of all routes.
func (p *Pipeline) Saved(backlog func(id string) (bytes, owned, all int64)) {
	p.mu.Lock()
	for _, r := range p.now.Load().routes {
		bytes, owned, all := backlog(r.Settings().ID)
		p.shared.OnDisk.Store(all)
		r.Saved(bytes, owned)
	}
	p.mu.Unlock()
	p.shared.Chains.Saved()
}

// Missed adapts the records of a route that was absent for a while: its condition must be evaluated
// for all objects.
func Missed(records []checkpoint.RuleRecord) []checkpoint.RuleRecord {
	return condition.Missed(records)
}

// RestoreRules restores the rules of a route, by its id, from the records that [Pipeline.Dirty]
// returned. Call it before Start and before the first Admit. Damaged records are skipped and
// reported by the error.
func (p *Pipeline) RestoreRules(id string, records []checkpoint.RuleRecord) error {
	r := p.now.Load().byID(id)
	if r == nil || len(records) == 0 {
		return nil
	}
	return r.RestoreRules(records)
}

// Redeliver enqueues the delta of a dead letter again, with Redelivered set, behind the pending
// deltas of its key. The filter is skipped, unless the filter or the key had failed. If the dead
// letter names a sink, only that sink gets the delta. Attempts and ages start again.
//
// The dead letter is removed from Config.DeadLetters once the route is done with the delta; if that
// is rejected again, a new dead letter was written before. [Pipeline.Dirty] does not contain the
// redelivered delta: after a crash the dead letter still exists.
//
// The error says why redelivery is impossible now, and what to do about it.
func (p *Pipeline) Redeliver(ctx context.Context, deadLetter checkpoint.Letter) error {
	select {
	case <-p.life.stopping:
		return ErrStopped
	default:
	}
	r := p.now.Load().byID(deadLetter.Route)
	if r == nil {
		return fmt.Errorf("route %q of the dead letter is not configured: configure it again, or drop the dead letter", deadLetter.Route)
	}
	return r.Redeliver(ctx, deadLetter)
}
