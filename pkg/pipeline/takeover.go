package pipeline

import (
	"maps"
	"math/bits"
	"slices"
)

// takeOver makes r owe what from owes, before what r owes by itself. No worker of r has started, and those of from have ended, or are
// given up. All of it keeps its number: those of r begin behind those of from, see Swap.
func (r *route) takeOver(from *route) {
	from.mu.Lock()
	defer from.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	own, same := r.q, from.cfg.Name == r.cfg.Name
	r.q = queue{shape: own.shape, changes: changes{on: own.changes.on, last: own.changes.last, gone: slices.Concat(from.q.changes.gone, own.changes.gone)}}
	r.q.tail = from.q.tail
	r.q.tail.slots, r.q.tail.bytes, r.q.tail.reading = nil, 0, false
	r.q.tail.gone = map[uint64]bool{}
	maps.Copy(r.q.tail.gone, from.q.tail.gone)
	maps.Copy(r.q.tail.gone, own.tail.gone)
	// The entries of one object are in this order, see stage: what is being settled was pending.
	for _, st := range []stage{attempted, waiting, settling, pending, spilled} {
		for e := from.q.ages[st].head; e != nil; e = e.links[byAge].next {
			if e.letter == 0 { // a dead letter that is delivered again is kept, and can be retried
				r.inherit(e, from, same && e.counted)
			}
		}
	}
	first := !r.q.tailed()
	if first {
		r.q.tail.after, r.q.tail.since = own.tail.after, own.tail.since
	}
	tailed := r.q.tailed() || r.cfg.Disk > 0 && r.q.headLen()+own.ages[pending].len > r.cfg.Capacity
	for _, st := range []stage{pending, spilled} {
		for e := own.ages[st].head; e != nil; e = e.links[byAge].next {
			to := st
			if tailed {
				to = spilled
			}
			r.adopt(e, to).counted = e.counted
		}
	}
	r.q.tail.n += own.tail.n
	if t := &r.q.tail; first && own.tailed() && own.tail.after < t.after { // what is on disk alone comes before the first in memory
		t.after, t.since = own.tail.after, own.tail.since
	}
	r.settled = false
	r.changed()
}

// adopt owes what another queue owed, as a new entry: the old one may be with a worker that was given up.
func (r *route) adopt(old *entry, st stage) *entry {
	e := reuse(&r.q.freeEntries)
	e.delta, e.since, e.unseen, e.id, e.saved, e.unlimited = old.delta, old.since, old.unseen, old.id, old.saved, old.unlimited
	if st == spilled {
		r.q.toTail(e)
	} else {
		e.stage, e.object = st, r.q.slot(objectID(e.delta))
		e.object.object.push(e, byObject)
		r.q.ages[st].push(e, byAge)
	}
	if old.changed || !old.saved {
		r.q.changes.note(e)
	}
	return e
}

// inherit owes what another route owed. counted: this route's metrics have it already.
func (r *route) inherit(old *entry, from *route, counted bool) {
	if old.stage == spilled {
		r.adopt(old, spilled).counted = counted
		return
	}
	var closed uint64
	for i, s := range from.cfg.Sinks {
		if old.closed&(1<<i) == 0 {
			continue
		}
		if at := slices.IndexFunc(r.cfg.Sinks, func(n NamedSink) bool { return n.Name == s.Name }); at >= 0 {
			closed |= 1 << at
		}
	}
	e := r.adopt(old, settling)
	if bits.OnesCount64(closed) == len(r.cfg.Sinks) {
		if counted {
			r.count.delivered.Inc()
		}
		r.q.remove(e)
		return
	}
	e.work = reuse(&r.q.freeWork)
	e.counted = counted
	e.restored = old.restored || old.stage == attempted
	e.closed, e.attempts = closed, old.attempts
	e.work.closed, e.work.attempts = closed, old.attempts
}
