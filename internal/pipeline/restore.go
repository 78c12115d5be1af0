package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/route"
)

// Restore restores the backlog of the route of an id, of before a restart, as the sum of what
// [Pipeline.Dirty] handed over says. Call it before Start and before the first Admit, at most once
// for each route; restored deltas come before all that are admitted. pending is the beginning of
// it, or all of it, and backlog says how much there is in all: the rest is read from Config.Store
// when its turn comes.
//
// Restored deltas count as attempted: they are never coalesced or dropped for want of room. Sinks
// that were done with one do not get it again; sinks that are new to the route do, and one that all
// the sinks are done with is forgotten. A delta that had passed the filter is delivered whatever
// the filter says now; one that the filter was never asked about, or failed on, is evaluated anew.
// The key is asked again in any case; where it fails for a delta that has passed, the delta is
// ordered by its object.
//
// The error says that there is no such route, that it is too late, or that pending contradicts
// itself; then nothing is restored.
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
		return fmt.Errorf("route %q: its backlog cannot be restored: %w", r.Config().Name, err)
	}
	return nil
}

// Dirty hands over what changed, since the last call, in the backlogs of the routes: deltas that
// were added, coalesced or tried in vain, or that a sink is done with, and the numbers of those
// that are pending no longer. A delta that came and went in between appears nowhere. The caller
// keeps what it was given until it is written. A route without changes is left out.
//
// It may be called at any time, also after Close. The routes are looked at one after another: a
// caller that holds the cut locks of all sources gets one moment of all of them, and an event that
// a route gave to another is pending at one of the two. Without a [Store] there are no changes.
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

// Saved says that everything that [Pipeline.Dirty] has handed over is on disk. backlog returns how
// many bytes the route of an id takes there, and how many all of them.
func (p *Pipeline) Saved(backlog func(id string) (bytes, all int64)) {
	p.mu.Lock()
	for _, r := range p.now.Load().routes {
		bytes, all := backlog(r.Config().ID)
		p.shared.OnDisk.Store(all)
		r.Saved(bytes)
	}
	p.mu.Unlock()
	p.shared.Chains.Saved()
}

// Missed returns the records of a route that was not there for a while: its condition has to be
// evaluated for all objects.
func Missed(records []checkpoint.RuleRecord) []checkpoint.RuleRecord {
	return condition.Missed(records)
}

// RestoreRules restores the rules of a route from the records that [Pipeline.Dirty] returned, by
// the id of the route. Call it before Start and before the first Admit. Records that cannot be read
// are ignored: the error says so.
func (p *Pipeline) RestoreRules(id string, records []checkpoint.RuleRecord) error {
	r := p.now.Load().byID(id)
	if r == nil || len(records) == 0 {
		return nil
	}
	return r.Conditions().RestoreRules(records)
}

// Redeliver puts the delta of a dead letter through its route again, flagged as redelivered: behind
// the pending deltas of its key, without asking the filter, unless it was the filter or the key
// that failed. Only the sink that refused it gets it, if the letter names one. The attempts, and
// the time that an unavailable sink has, begin anew.
//
// The letter is removed from Config.DeadLetters once the route is done with the delta; if it is put
// aside again, there is a new letter by then. Until that happens the letter is all that a crash
// leaves: the redelivered delta is not handed over by [Pipeline.Dirty].
//
// The error says why it cannot be put through now, and what to do about it.
func (p *Pipeline) Redeliver(ctx context.Context, letter checkpoint.Letter) error {
	select {
	case <-p.life.stopping:
		return ErrStopped
	default:
	}
	r := p.now.Load().byID(letter.Route)
	if r == nil {
		return fmt.Errorf("there is no route %q any more: configure it again, or drop the letter", letter.Route)
	}
	return r.Redeliver(ctx, letter)
}
