package queue

import (
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// netResult is what becomes of two deltas of one object that follow each other.
type netResult uint8

const (
	keepBoth netResult = iota
	keepOne            // the net change
	keepNone           // the one undid the other
)

// coalesce gives the net change of a and then b, as far as the route knows: what its filter and ops
// left out may lie between them, so that any two ops can meet, also of two objects that had the
// same name one after the other.
//
//	a \ b       Added      Updated      Deleted, Deselected   Sync
//	Added       b          Added(b)     nothing, or b         Added(b)
//	Updated     Updated    Updated      b                     Updated
//	Deleted     both       both         both, or see end      both
//	Deselected  both       both         both, or b            both
//	Sync        b          b            b                     b
//
// Added and an end are nothing, but where Added is Selective the end is left: the object may have
// been there before, for those who never saw it leave. Updated is from the state before a to the
// state after b. Where the uids differ, b alone is left, but an end is coalesced into nothing but
// an end of the same uid: each incarnation that was delivered has to be told gone. So of any number
// of deltas about one uid at most two are left, an end and what came after it, and those that wait
// for room are no more than an identity.
//
// What another route made an event of stays as it is: two events are two.
func coalesce(a, b *event.Delta) (*event.Delta, netResult) {
	if a.Event != nil || b.Event != nil {
		return nil, keepBoth
	}
	if IsEdge(a.Op) || IsEdge(b.Op) {
		return coalesceEdges(a, b)
	}
	if Ends(a.Op) {
		if !Ends(b.Op) || a.Object().UID() != b.Object().UID() {
			return nil, keepBoth
		}
		if a.Op == event.Deleted && b.Op == event.Deselected {
			return a, keepOne // gone is gone
		}
		return b, keepOne
	}
	if a.Object().UID() != b.Object().UID() {
		return b, keepOne
	}
	switch {
	case Ends(b.Op):
		if a.Op == event.Added && !a.Transit().Selective {
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
	default: // a sync says nothing that b does not say
		return b, keepOne
	}
}

// IsEdge reports whether a condition began to hold or ended.
func IsEdge(op event.Op) bool { return op == event.Entered || op == event.Left }

// coalesceEdges is coalesce for what a route with a condition tells: Entered and Left of one object
// alternate, and still do so when some are coalesced. That a condition held, and ended before
// anybody was told, goes as a whole, or stays as a whole; a reminder goes into what it reminds of,
// and with what ends it.
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

// Ends reports whether the object is out of sight after the op.
func Ends(op event.Op) bool { return op == event.Deleted || op == event.Deselected }

func net(a, b *event.Delta, op event.Op, old *event.Object) *event.Delta {
	d := &event.Delta{
		Source: b.Source, Op: op, Old: old, New: b.New, Seen: b.Seen,
		Initial:     a.Initial && op == event.Added,
		Stale:       a.Stale || b.Stale,
		Redelivered: a.Redelivered || b.Redelivered,
	}
	transit := d.Transit()
	transit.Selective = a.Transit().Selective || b.Transit().Selective
	if transit.Durable = b.Transit().Durable; transit.Durable == nil {
		transit.Durable = a.Transit().Durable
	}
	return d
}

// smallDelete is the size, in bytes of JSON, below which cutting an object down to its identity
// gains nothing.
const smallDelete = 512

// IdentityOnly returns d with only the identity of its object if d ends the object: nobody else
// holds that state any more. What is fed to a route is not there without bound, so that it need not
// be cut.
func IdentityOnly(d *event.Delta) *event.Delta {
	if !Ends(d.Op) || d.Event != nil || len(d.Old.JSON()) <= smallDelete {
		return d
	}
	bare, err := identity(d.Old)
	if err != nil {
		return d // whole is better than not at all
	}
	shrunk := *d
	shrunk.Old = bare
	return &shrunk
}

// identity returns an object with only what names it.
func identity(o *event.Object) (*event.Object, error) {
	id := rawjson.Identity{
		APIVersion: o.Raw().Get("apiVersion").Str(), Kind: o.Raw().Get("kind").Str(),
		Name: o.Key().Name, Namespace: o.Key().Namespace, UID: o.UID(), ResourceVersion: o.ResourceVersion(),
	}
	return event.ParseObject(o.Resource(), id.JSON())
}

// Coalesce gives the entries that wait for the object of e, in the stage of e, and were never
// attempted their net change. It returns how many deltas are gone by it, e maybe among them, and
// for how many of them none was counted as matched. Before the filter decided, a delta coalesces
// only with others of which that is true.
func (q *Queue) Coalesce(e *Entry) (coalesced, uncounted int) {
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
		case keepBoth:
			e = n
			continue
		case keepNone:
			after := n.links[byObject].next
			uncounted += e.uncounted() + n.uncounted()
			q.Unspent.Add(e)
			q.Unspent.Add(n)
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
		return nil, keepBoth // how many were suppressed has to be told
	case d.Suppressed != suppressed:
		told := *d
		told.Suppressed = suppressed
		d = &told
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

// merge leaves d in the place of a and b: in the lane in the place of a, or of b where the key has
// changed, in age always in that of a.
func (q *Queue) merge(a, b *Entry, d *event.Delta) *Entry {
	// an error of the filter is about the later state
	a.Progress, b.Progress = b.Progress, a.Progress
	stays, goes := a, b
	if a.lane != b.lane {
		stays, goes = b, a
		stays.Progress, goes.Progress = goes.Progress, stays.Progress
		age := &q.Head.ages[a.stage] // in the tail there are no lanes
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
