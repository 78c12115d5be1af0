package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
)

// unseen stands among the sinks that are done with a delta and says that the route's filter and key were not asked about it yet, or
// failed. No sink has this name.
const unseen = ""

// Restore makes a route owe what it owed before a restart, as the sum of what [Pipeline.Dirty] handed over says. Call it before Start
// and before the first Admit, at most once for each route; what is restored comes before anything that is admitted. owed is the
// beginning of it, or all of it, and debt says how much there is in all: the rest is read from Config.Store when its turn comes.
//
// Restored deltas count as attempted: they are never folded or dropped for want of room. Sinks that were done with one do not get it
// again; sinks that are new to the route do, and one that all the sinks are done with is forgotten. A delta that had passed the
// filter is delivered whatever the filter says now; one that the filter was never asked about, or failed on, is evaluated anew.
// The key is asked again in any case; where it fails for a delta that has passed, the delta is ordered by its object.
//
// The error says that there is no such route, that it is too late, or that owed contradicts itself; then nothing is restored.
func (p *Pipeline) Restore(name string, owed []checkpoint.Owed, debt checkpoint.Debt) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	routes := p.now.Load().routes
	i := slices.IndexFunc(routes, func(r *route) bool { return r.cfg.Name == name })
	switch {
	case i < 0:
		return fmt.Errorf("route %q: what it owed cannot be restored: there is no such route", name)
	case p.cancel != nil:
		return fmt.Errorf("route %q: what it owed cannot be restored: the pipeline has started", name)
	}
	if err := routes[i].restore(owed, debt); err != nil {
		return fmt.Errorf("route %q: what it owed cannot be restored: %w", name, err)
	}
	return nil
}

// Dirty hands over what changed, since the last call, in what the routes owe: deltas that were added, folded or tried in vain, or that
// a sink is done with, and the numbers of those that are owed no longer. A delta that came and went in between appears nowhere. The
// caller keeps what it was given until it is written. A route without changes is left out.
//
// It may be called at any time, also after Close. The routes are looked at one after another: a caller that holds the cut locks of
// all sources gets one moment of all of them, and what a route gave to another is owed by one of the two, whoever calls. Without a [Store] there are no changes.
func (p *Pipeline) Dirty() []checkpoint.RouteCut {
	var cuts []checkpoint.RouteCut
	p.feeds.Lock()
	defer p.feeds.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Concat(p.left, p.leaving, p.now.Load().routes) {
		cut := r.dirty()
		if len(cut.Put) == 0 && len(cut.Removed) == 0 && len(cut.Rules) == 0 && !cut.Reset {
			continue
		}
		if i := slices.IndexFunc(cuts, func(c checkpoint.RouteCut) bool { return c.Name == cut.Name }); i >= 0 {
			cuts[i].Put, cuts[i].Removed = append(cuts[i].Put, cut.Put...), append(cuts[i].Removed, cut.Removed...)
			cuts[i].Rules = append(cuts[i].Rules, cut.Rules...)
			continue
		}
		cuts = append(cuts, cut)
	}
	for _, r := range p.left {
		r.retire()
	}
	p.left = nil
	p.saving, p.passedOn = append(p.saving, p.passedOn...), nil
	return cuts
}

func (r *route) restore(owed []checkpoint.Owed, debt checkpoint.Debt) error {
	owed = sorted(owed)
	for i, o := range owed {
		switch {
		case o.Delta == nil || o.Delta.Object() == nil:
			return fmt.Errorf("delta %d has no object", o.ID)
		case i > 0 && owed[i-1].ID == o.ID:
			return fmt.Errorf("there are two deltas %d", o.ID)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.q.changes.on:
		return errors.New("the pipeline is not durable")
	case r.q.changes.last > 0:
		return errors.New("it owes deltas already")
	}
	t := &r.q.tail
	if len(owed) > 0 {
		last := owed[len(owed)-1]
		t.after, t.since = last.ID, last.Delta.Seen
	}
	t.n, t.onDisk, t.before = max(0, debt.N-len(owed)), debt.Bytes, max(t.after, debt.Last)
	t.counted = t.before
	r.q.changes.last = t.before
	for _, o := range owed {
		r.readmit(o)
	}
	r.changed()
	return nil
}

func sorted(owed []checkpoint.Owed) []checkpoint.Owed {
	return slices.SortedFunc(slices.Values(owed), func(a, b checkpoint.Owed) int { return cmp.Compare(a.ID, b.ID) })
}

// readmit owes a delta that is on disk.
func (r *route) readmit(o checkpoint.Owed) {
	var closed uint64
	for i, s := range r.cfg.Sinks {
		if slices.Contains(o.Closed, s.Name) {
			closed |= 1 << i
		}
	}
	e := r.q.restore(o.Delta, o.ID)
	if bits.OnesCount64(closed) == len(r.cfg.Sinks) {
		r.q.remove(e)
		return
	}
	e.unseen = slices.Contains(o.Closed, unseen)
	e.counted = !e.unseen && o.ID > r.q.tail.counted
	e.unlimited = o.Unlimited
	e.closed, e.attempts = closed, o.Attempts
	e.work.closed, e.work.attempts = closed, o.Attempts
	r.settled = false
}

// dirty hands over what changed in the route.
func (r *route) dirty() checkpoint.RouteCut {
	r.mu.Lock()
	defer r.mu.Unlock()
	cut := checkpoint.RouteCut{Name: r.cfg.Name, Reset: r.reset, Rules: r.dirtyRules()}
	r.reset = false
	for id := range r.q.tail.gone {
		r.q.tail.gone[id] = true
	}
	if n := r.q.changes.put.len; n > 0 {
		cut.Put = make([]checkpoint.Owed, 0, n)
	}
	names := r.names()
	cut.Removed = r.q.changes.handOver(func(e *entry) {
		cut.Put = append(cut.Put, checkpoint.Owed{ID: e.id, Delta: e.delta, Closed: names(e), Attempts: e.attempts, Unlimited: e.unlimited})
	})
	return cut
}

// names returns a function that lists what is closed for an entry. Most entries have the same, so that they share a list.
func (r *route) names() func(e *entry) []string {
	type key struct {
		closed uint64
		unseen bool
	}
	var lists map[key][]string
	return func(e *entry) []string {
		k := key{e.closed, e.unseen}
		if k == (key{}) {
			return nil
		}
		list, known := lists[k]
		if known {
			return list
		}
		for i, s := range r.cfg.Sinks {
			if e.closed&(1<<i) != 0 {
				list = append(list, s.Name)
			}
		}
		if e.unseen {
			list = append(list, unseen)
		}
		if lists == nil {
			lists = map[key][]string{}
		}
		lists[k] = list
		return list
	}
}

// publish tells the checkpoint which sinks are done with the entries of the wave, before the batch as a whole is.
func (w *worker) publish() {
	if !w.q.changes.on {
		return
	}
	if w.group != nil {
		w.share()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen {
		return
	}
	for _, e := range w.wave {
		for _, m := range w.members(e) {
			w.tell(m)
		}
	}
}

// tell puts what the checkpoint has to know of an entry's work where it finds it. It is called under the lock.
func (r *route) tell(e *entry) {
	if e.closed != e.work.closed || e.attempts != e.work.attempts {
		e.closed, e.attempts = e.work.closed, e.work.attempts
		r.q.changes.note(e)
	}
}
