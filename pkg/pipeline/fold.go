package pipeline

import (
	"encoding/json"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// folding is what becomes of two deltas of one object that follow each other.
type folding uint8

const (
	keepBoth folding = iota
	keepOne          // the net change
	keepNone         // the one undid the other
)

// fold gives the net change of a and then b, as far as the route knows: what its filter and ops left out may lie between them, so that
// any two ops can meet, also of two objects that had the same name one after the other.
//
//	a \ b       Added      Updated      Deleted, Deselected   Sync
//	Added       b          Added(b)     nothing, or b         Added(b)
//	Updated     Updated    Updated      b                     Updated
//	Deleted     both       both         both, or see end      both
//	Deselected  both       both         both, or b            both
//	Sync        b          b            b                     b
//
// Added and an end are nothing, but where Added is Selective the end is left: the object may have been there before, for those who
// never saw it leave. Updated is from the state before a to the state after b. Where the uids differ, b alone is left, but an end is
// folded into nothing but an end of the same uid: each incarnation that was delivered has to be told gone. So of any number of
// deltas about one uid at most two are left, an end and what came after it, and those that wait for room are no more than an identity.
//
// What another route made an event of stays as it is: two events are two.
func fold(a, b *event.Delta) (*event.Delta, folding) {
	if a.Event != nil || b.Event != nil {
		return nil, keepBoth
	}
	if isEdge(a.Op) || isEdge(b.Op) {
		return foldEdges(a, b)
	}
	if ends(a.Op) {
		if !ends(b.Op) || a.Object().UID() != b.Object().UID() {
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
	case ends(b.Op):
		if a.Op == event.Added && !a.Selective {
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

// isEdge reports whether a condition began to hold or ended.
func isEdge(op event.Op) bool { return op == event.Entered || op == event.Left }

// foldEdges is fold for what a route with a condition tells: Entered and Left of one object alternate, and still do so when some are
// folded. That a condition held, and ended before anybody was told, goes as a whole, or stays as a whole; a reminder goes into what it
// reminds of, and with what ends it.
func foldEdges(a, b *event.Delta) (*event.Delta, folding) {
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

// ends reports whether the object is out of sight after the op.
func ends(op event.Op) bool { return op == event.Deleted || op == event.Deselected }

func net(a, b *event.Delta, op event.Op, old *event.Object) *event.Delta {
	durable := b.Durable
	if durable == nil {
		durable = a.Durable
	}
	return &event.Delta{
		Source: b.Source, Op: op, Old: old, New: b.New, Seen: b.Seen,
		Initial:     a.Initial && op == event.Added,
		Stale:       a.Stale || b.Stale,
		Selective:   a.Selective || b.Selective,
		Redelivered: a.Redelivered || b.Redelivered,
		Durable:     durable,
	}
}

// smallDelete is the size, in bytes of JSON, below which cutting an object down to its identity gains nothing.
const smallDelete = 512

// shrink returns d with only the identity of its object if d ends the object: nobody else holds that state any more. What is fed to a
// route is not there without bound, so that it need not be cut.
func shrink(d *event.Delta) *event.Delta {
	if !ends(d.Op) || d.Event != nil || len(d.Old.JSON()) <= smallDelete {
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
	var bare struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
		Metadata   struct {
			Name            string `json:"name"`
			Namespace       string `json:"namespace,omitempty"`
			UID             string `json:"uid,omitempty"`
			ResourceVersion string `json:"resourceVersion,omitempty"`
		} `json:"metadata"`
	}
	bare.APIVersion, bare.Kind = o.Raw().Get("apiVersion").Str(), o.Raw().Get("kind").Str()
	bare.Metadata.Name, bare.Metadata.Namespace = o.Key().Name, o.Key().Namespace
	bare.Metadata.UID, bare.Metadata.ResourceVersion = o.UID(), o.ResourceVersion()
	text, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	return event.ParseObject(o.Resource(), string(text))
}

// compact folds what waits for an object and was never attempted. It returns how many deltas are gone by it, and for how many of them
// none was counted as matched. Before the filter decided, a delta folds only with others of which that is true.
func (q *queue) compact(object *slot, st stage) (folded, uncounted int) {
	e := object.object.tail
	for e != nil && e.stage < st {
		e = e.links[byObject].prev
	}
	if e == nil || e.stage != st {
		return 0, 0
	}
	for e.before(st) != nil {
		e = e.before(st)
	}
	for e != nil {
		n := e.links[byObject].next
		if n == nil || n.stage != st {
			break
		}
		d, kept := e.fold(n)
		before := e.before(st)
		switch kept {
		case keepBoth:
			e = n
			continue
		case keepNone:
			after := n.links[byObject].next
			uncounted += e.uncounted() + n.uncounted()
			q.unspend(e)
			q.unspend(n)
			q.remove(n)
			q.remove(e)
			folded += 2
			e = before
			if e == nil && after != nil && after.stage == st {
				e = after
			}
		case keepOne:
			folded++
			uncounted += e.uncounted() * n.uncounted()
			e = q.merge(e, n, d)
			if before != nil {
				e = before
			}
		}
	}
	return folded, uncounted
}

// fold folds what two entries of one stage are about.
func (e *entry) fold(n *entry) (*event.Delta, folding) {
	if e.stage < waiting && e.unseen != n.unseen {
		return nil, keepBoth
	}
	d, kept := fold(e.delta, n.delta)
	suppressed := e.delta.Suppressed + n.delta.Suppressed
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

func (e *entry) uncounted() int {
	if e.counted {
		return 0
	}
	return 1
}

// before returns the entry before e of the same object, if it is in the given stage.
func (e *entry) before(st stage) *entry {
	if p := e.links[byObject].prev; p != nil && p.stage == st {
		return p
	}
	return nil
}

// merge leaves d in the place of a and b: in the lane in the place of a, or of b where the key has changed, in age always in that of a.
func (q *queue) merge(a, b *entry, d *event.Delta) *entry {
	a.work, b.work = b.work, a.work // an error of the filter is about the later state
	stays, goes := a, b
	if a.lane != b.lane {
		stays, goes = b, a
		stays.work, goes.work = goes.work, stays.work
		age := &q.ages[a.stage]
		age.remove(b, byAge)
		age.insert(b, a, byAge)
		b.since = a.since
	}
	q.setDelta(stays, d)
	if stays.pass = b.pass; b.pass == nil {
		stays.pass = a.pass
	}
	stays.unseen, stays.counted = b.unseen, a.counted && b.counted
	stays.unlimited, stays.limitKey = a.unlimited && b.unlimited, b.limitKey
	q.changes.note(stays)
	q.remove(goes)
	return stays
}
