package queue

import (
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// netResult is the result of coalescing two successive deltas of one object.
type netResult uint8

const (
	keepBoth netResult = iota
	keepOne            // the net change
	keepNone           // the second undid the first
)

// coalesce returns the net change of a followed by b, as far as the route knows. Deltas that the
// filter or ops excluded may lie between them, so any two operations can meet, also of two objects
// with the same name.
//
//	a \ b       Added      Updated      Deleted, Deselected   Sync
//	Added       b          Added(b)     nothing, or b         Added(b)
//	Updated     Updated    Updated      b                     Updated
//	Deleted     both       both         both, or see end      both
//	Deselected  both       both         both, or b            both
//	Sync        b          b            b                     b
//
// The rules of the table:
//   - Added and an end cancel each other. If Added is Selective, the end is kept: a receiver may
//     have seen the object before it left the selector.
//   - Updated has the old object of a and the new object of b.
//   - If the uids differ, only b is kept. An end is coalesced only with an end of the same uid,
//     because the end of each delivered incarnation must be delivered.
//
// Any number of deltas about one uid therefore becomes at most two: an end, and the net change
// after it. Those that wait for room are reduced to an identity.
//
// Events of an upstream route are not coalesced.
func coalesce(a, b *event.Delta) (*event.Delta, netResult) {
	if a.Event != nil || b.Event != nil {
		return nil, keepBoth
	}
	if IsEdge(a) || IsEdge(b) {
		return coalesceEdges(a, b)
	}
	if Ends(a.Op) {
		if !Ends(b.Op) || a.Object().UID() != b.Object().UID() {
			return nil, keepBoth
		}
		if a.Op == event.Deleted && b.Op == event.Deselected {
			return a, keepOne // a deleted object cannot be deselected
		}
		return b, keepOne
	}
	if a.Object().UID() != b.Object().UID() {
		return b, keepOne
	}
	switch {
	case Ends(b.Op):
		if a.Op == event.Added && !transit.Of(a).Selective {
			return nil, keepNone
		}
		return b, keepOne
	case a.Op == event.Added:
		if b.Op == event.Added {
			return b, keepOne
		}
		return net(a, b, event.Added, nil), keepOne
	case a.Op == event.Updated:
		return net(a, b, event.Updated, a.Old), keepOne
	default: // b contains all that a sync says
		return b, keepOne
	}
}

// IsEdge reports whether d is an edge of a condition of its route. An event of an upstream route
// keeps the operation of its delta, but that edge is not one of the downstream route, whose limit
// and windows apply to it.
func IsEdge(d *event.Delta) bool {
	return d.Event == nil && (d.Op == event.Entered || d.Op == event.Left)
}

// coalesceEdges coalesces the edges of a condition. Entered and Left of one object alternate, also
// after coalescing. A first Entered and its Left cancel each other as long as both are pending. A
// reminder is coalesced with the Entered that it repeats, and with the Left that ends it.
func coalesceEdges(a, b *event.Delta) (*event.Delta, netResult) {
	if a.Op != event.Entered || a.Began != b.Began || a.Object().UID() != b.Object().UID() {
		return nil, keepBoth
	}
	switch {
	case b.Op == event.Left && a.Repeat == 0:
		return nil, keepNone
	case b.Op == event.Entered && a.Repeat == 0:
		first := *a
		first.Old, first.New = nil, b.New
		return &first, keepOne
	}
	return b, keepOne
}

// Ends reports whether the route no longer sees the object after the operation.
func Ends(op event.Op) bool { return op == event.Deleted || op == event.Deselected }

func net(a, b *event.Delta, op event.Op, old *event.Object) *event.Delta {
	d := &event.Delta{
		Source: b.Source, Op: op, Old: old, New: b.New, Seen: b.Seen,
		Initial:     a.Initial && op == event.Added,
		Stale:       a.Stale || b.Stale,
		Redelivered: a.Redelivered || b.Redelivered,
	}
	state := transit.Of(d)
	state.Selective = transit.Of(a).Selective || transit.Of(b).Selective
	if state.Durable = transit.Of(b).Durable; state.Durable == nil {
		state.Durable = transit.Of(a).Durable
	}
	return d
}

// smallDelete is the size, in bytes of JSON, below which reducing an object to its identity saves
// nothing.
const smallDelete = 512

// IdentityOnly reduces the object of d to its identity if d ends the object: the cache no longer
// shares that state. Events of upstream routes are bounded by their queues and stay whole.
func IdentityOnly(d *event.Delta) *event.Delta {
	if !Ends(d.Op) || d.Event != nil || len(d.Old.JSON()) <= smallDelete {
		return d
	}
	identityOnly, err := identity(d.Old)
	if err != nil {
		return d // a whole object is better than none
	}
	shrunk := *d
	shrunk.Old = identityOnly
	return &shrunk
}

// identity returns an object with only its identifying fields.
func identity(o *event.Object) (*event.Object, error) {
	id := rawjson.Identity{
		APIVersion: o.Raw().Get("apiVersion").Str(), Kind: o.Raw().Get("kind").Str(),
		Name: o.Key().Name, Namespace: o.Key().Namespace, UID: o.UID(), ResourceVersion: o.ResourceVersion(),
	}
	return event.ParseObject(o.Resource(), id.JSON())
}

// Coalesce replaces the entries of the object of e that were never attempted, in the stage of e, by
// their net change. It returns the number of removed deltas, possibly including e, and for how many
// of them none was counted as matched. Before the filter has decided, an entry coalesces only with
// other undecided ones.
func (q *Queue) Coalesce(e *Entry) (coalesced, uncounted int) {
	// Begin at the oldest entry of the stage: each coalesces with the one behind it.
	st := e.stage
	for e.before(st) != nil {
		e = e.before(st)
	}
	for e != nil {
		n := e.links[byObject].next
		if n == nil || n.stage != st {
			break
		}
		d, kept := e.coalesce(n)
		before := e.before(st)
		switch kept {
		case keepBoth: // such as a delete and the creation of the next object of the name
			e = n
			continue
		case keepNone: // created and deleted: go on with the neighbours, which may coalesce now
			after := n.links[byObject].next
			uncounted += e.uncounted() + n.uncounted()
			q.Unspent.Add(e)
			q.Unspent.Add(n)
			absorb(q, e, n, nil)
			absorb(q, n, nil, nil)
			q.Remove(n)
			q.Remove(e)
			coalesced += 2
			e = before
			if e == nil && after != nil && after.stage == st {
				e = after
			}
		case keepOne:
			coalesced++
			uncounted += e.uncounted() * n.uncounted()
			e = q.merge(e, n, d)
			if before != nil {
				e = before
			}
		}
	}
	return coalesced, uncounted
}

// coalesce coalesces the deltas of two entries of one stage.
func (e *Entry) coalesce(n *Entry) (*event.Delta, netResult) {
	if e.stage < Waiting && e.Unseen != n.Unseen {
		return nil, keepBoth
	}
	d, kept := coalesce(e.Delta, n.Delta)
	suppressed := e.Delta.Suppressed + n.Delta.Suppressed
	switch {
	case suppressed == 0 || kept == keepBoth:
		return d, kept
	case kept == keepNone:
		return nil, keepBoth // the count of suppressed deltas must be delivered
	case d.Suppressed != suppressed:
		counted := *d
		counted.Suppressed = suppressed
		d = &counted
	}
	return d, kept
}

func (e *Entry) uncounted() int {
	if e.Counted {
		return 0
	}
	return 1
}

// before returns the entry before e of the same object, if it is in the given stage.
func (e *Entry) before(st Stage) *Entry {
	if p := e.links[byObject].prev; p != nil && p.stage == st {
		return p
	}
	return nil
}

// merge replaces a and b by one entry with the delta d. It has the place of a in the lane, or that
// of b if the key has changed, and always the age of a.
func (q *Queue) merge(a, b *Entry, d *event.Delta) *Entry {
	// an error of the filter refers to the later state
	a.Progress, b.Progress = b.Progress, a.Progress
	absorb(q, a, b, d)
	a.Trace, b.Trace = b.Trace, nil
	stays, goes := a, b
	if a.lane != b.lane {
		stays, goes = b, a
		stays.Progress, goes.Progress = goes.Progress, stays.Progress
		stays.Trace, goes.Trace = goes.Trace, stays.Trace
		age := &q.Head.ages[a.stage] // the tail has no lanes
		age.remove(b, byAge)
		age.insert(b, a, byAge)
		b.Since = a.Since
	}
	q.SetDelta(stays, d)
	pass := b.Limit.Pass
	if pass == nil {
		pass = a.Limit.Pass
	}
	stays.Limit = Limit{a.Limit.Later && b.Limit.Later, b.Limit.Key, pass}
	stays.Unseen, stays.Counted = b.Unseen, a.Counted && b.Counted
	q.Changes.Note(stays)
	q.Remove(goes)
	return stays
}

// absorb ends the span of an entry that is coalesced into another one, whose span gets a link to
// it. into is the delta of both; nil: nothing is left of them.
func absorb(q *Queue, goes, stays *Entry, into *event.Delta) {
	if goes.Trace == nil || q.Absorbed == nil {
		return
	}
	if stays != nil {
		stays.Trace.Absorb(goes.Trace)
	}
	q.Absorbed(goes, into)
}
