package pipeline

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
)

// lastNumber returns the highest number that an entry of the route ever had.
func (r *route) lastNumber() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.q.changes.last
}

// takeOver makes r owe what from owes, before what r owes by itself. No worker of r has started, and those of from have ended, or are
// given up. All of it gets new numbers.
func (r *route) takeOver(from *route) {
	from.mu.Lock()
	defer from.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.q
	r.q = queue{changes: changes{on: own.changes.on, last: own.changes.last}}
	for _, o := range r.before {
		r.inheritSaved(o)
	}
	r.before = nil
	same := from.cfg.Name == r.cfg.Name
	// The entries of one object are in this order, see stage: what is being settled was pending.
	for _, st := range []stage{attempted, waiting, settling, pending} {
		for e := from.q.ages[st].head; e != nil; e = e.links[byAge].next {
			if e.letter == 0 { // a dead letter that is delivered again is kept, and can be retried
				r.inherit(e, from, same && e.lane != nil)
			}
		}
	}
	for e := own.ages[pending].head; e != nil; e = e.links[byAge].next {
		r.q.addPending(e.delta)
	}
	r.settled, r.reset = false, r.q.changes.on
	r.changed()
}

// inherit owes what another route owed. counted: this route's metrics have it already.
func (r *route) inherit(old *entry, from *route, counted bool) {
	var closed uint64
	for i, s := range from.cfg.Sinks {
		if old.closed&(1<<i) == 0 {
			continue
		}
		if at := slices.IndexFunc(r.cfg.Sinks, func(n NamedSink) bool { return n.Name == s.Name }); at >= 0 {
			closed |= 1 << at
		}
	}
	if bits.OnesCount64(closed) == len(r.cfg.Sinks) {
		if counted {
			r.count.delivered.Inc()
		}
		return
	}
	e := r.q.append(old.delta, settling)
	e.work = reuse(&r.q.freeWork)
	e.since, e.unseen, e.counted = old.since, old.unseen, counted || old.counted && from.cfg.Name == r.cfg.Name
	e.restored = old.restored || old.stage == attempted
	e.closed, e.attempts = closed, old.attempts
	e.work.closed, e.work.attempts = closed, old.attempts
	r.q.changes.added(e)
}

// inheritSaved owes what another route owed when it was removed.
func (r *route) inheritSaved(o checkpoint.Owed) {
	var closed uint64
	for i, s := range r.cfg.Sinks {
		if slices.Contains(o.Closed, s.Name) {
			closed |= 1 << i
		}
	}
	if bits.OnesCount64(closed) == len(r.cfg.Sinks) {
		return
	}
	e := r.q.append(o.Delta, settling)
	e.work = reuse(&r.q.freeWork)
	e.restored, e.unseen = true, slices.Contains(o.Closed, unseen)
	e.closed, e.attempts = closed, o.Attempts
	e.work.closed, e.work.attempts = closed, o.Attempts
	r.q.changes.added(e)
}

// Inherit is [Pipeline.Inherit] for a route of the change. was is the name of a route that an earlier change has removed, and own what
// was saved of a route of [Change.New]; a route that is there already owes before first, and then what it owes now. It is called before
// Swap, for a route that is made anew, see [Route].Renew.
func (c *Change) Inherit(name, was string, before, own []checkpoint.Owed) error {
	i := slices.IndexFunc(c.pairs, func(p pair) bool { return p.route.cfg.Name == name })
	if i < 0 {
		return fmt.Errorf("route %q: what %q owed cannot be inherited: there is no such route, or it stays as it is", name, was)
	}
	r := c.pairs[i].route
	if c.pairs[i].from != nil {
		r.before, r.was = sorted(before), was
		return nil
	}
	if err := r.restore(inOrder(before, own)); err != nil {
		return fmt.Errorf("route %q: what %q owed cannot be inherited: %w", name, was, err)
	}
	r.rewrite()
	c.settled = append(c.settled, was)
	return nil
}

// inOrder numbers what was owed under two names.
func inOrder(before, own []checkpoint.Owed) []checkpoint.Owed {
	all := slices.Concat(sorted(before), sorted(own))
	for i := range all {
		all[i].ID = uint64(i) + 1 //nolint:gosec // not negative
	}
	return all
}

// Inherit is [Pipeline.Restore] for a route that was renamed: it owes first what it owed under its old name, then what it owes under
// its own, and nothing is owed under the old name any more.
func (p *Pipeline) Inherit(name, was string, before, own []checkpoint.Owed) error {
	if len(before) == 0 {
		return p.Restore(name, own)
	}
	if err := p.Restore(name, inOrder(before, own)); err != nil {
		return fmt.Errorf("it was %q: %w", was, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renamed = append(p.renamed, was)
	for _, r := range p.now.Load().routes {
		if r.cfg.Name == name {
			r.rewrite()
		}
	}
	return nil
}

// rewrite makes everything that is owed new to the checkpoint.
func (r *route) rewrite() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.q.ages[settling].head; e != nil; e = e.links[byAge].next {
		e.saved = false
		r.q.changes.note(e)
	}
	r.reset = true
}
