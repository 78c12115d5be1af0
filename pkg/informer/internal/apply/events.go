package apply

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Store returns the store for client-go's Reflector. Its methods return no errors, because
// client-go would log the object with them. No method waits longer than ctx, and once ctx is done
// nothing is applied.
func (a *Applier) Store(ctx context.Context) cache.ReflectorStore { return &reflectorStore{a, ctx} }

type reflectorStore struct {
	a   *Applier
	ctx context.Context //nolint:containedctx // client-go's interface has no place for it
}

// Add implements cache.ReflectorStore.
func (s *reflectorStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore. ADDED and MODIFIED are treated alike: the store decides
// whether an object is new.
func (s *reflectorStore) Update(obj any) error {
	a := s.a
	o, ok := obj.(*event.Object)
	if !ok || !a.held.await(s.ctx, maxHeld) || !a.own.take(s.ctx) {
		return nil
	}
	defer a.own.give()
	if a.within.outside(o) || !a.turn.take(s.ctx) {
		return nil
	}
	defer a.turn.give()
	if a.held.get(o.Key()) != nil {
		a.held.later(o.Key(), func(ctx context.Context) { update(ctx, a, o) })
	} else if !update(s.ctx, a, o) {
		return nil
	}
	s.arrive(o)
	return nil
}

// update applies an ADDED or MODIFIED event. The turn is held. It returns false if ctx is done.
func update(ctx context.Context, a *Applier, o *event.Object) bool {
	a.cfg.State.Loader().Fetch(o.Key())
	old := a.cfg.State.Get(o.Key())
	if old == nil && !a.again[o.Key()] && a.cfg.State.Position.Replays(o.ResourceVersion()) {
		return true // the object was gone again before the restart
	}
	return replayed(&a.gone, old, o) || a.put(ctx, old, o, false, o.ResourceVersion())
}

// Delete implements cache.ReflectorStore.
func (s *reflectorStore) Delete(obj any) error {
	a := s.a
	gone := objectOf(obj)
	if gone == nil || !a.held.await(s.ctx, maxHeld) || !a.own.take(s.ctx) {
		return nil
	}
	defer a.own.give()
	if a.within.outside(gone) || !a.turn.take(s.ctx) {
		return nil
	}
	defer a.turn.give()
	if a.held.get(gone.Key()) != nil {
		a.held.later(gone.Key(), func(ctx context.Context) { end(ctx, a, obj, gone) })
	} else {
		end(s.ctx, a, obj, gone)
	}
	s.arrive(gone)
	return nil
}

// end applies a DELETED event of gone, the object of obj. The turn is held.
func end(ctx context.Context, a *Applier, obj any, gone *event.Object) {
	switch o := obj.(type) {
	case *event.Object:
		a.cfg.State.Loader().Fetch(o.Key())
		a.remove(ctx, o)
	case wire.Placeholder: // the last state of the object cannot be read
		a.cfg.State.Loader().Fetch(o.Key())
		if old := a.cfg.State.Get(o.Key()); old != nil && old.UID() == o.UID() && !persist.Older(o.Object, old) {
			a.leave(ctx, old, a.cfg.State.Latest(old), true, o.ResourceVersion())
		} else if old := ended(a, o.Object); old != nil {
			a.leave(ctx, nil, old, true, o.ResourceVersion())
		}
	}
	a.gone.add(gone)
}

// arrive records that an event is applied, also one without a change.
func (s *reflectorStore) arrive(o *event.Object) {
	if s.ctx.Err() == nil {
		s.a.cfg.State.Arrive(o.ResourceVersion())
	}
}

// Replace implements cache.ReflectorStore.
func (s *reflectorStore) Replace(items []any, resourceVersion string) error {
	s.a.Replace(s.ctx, items, resourceVersion)
	return nil
}

// Resync implements cache.ReflectorStore. It is not used: see [Applier.SyncAll].
func (s *reflectorStore) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *reflectorStore) Bookmark(resourceVersion string) error {
	if !s.a.own.take(s.ctx) {
		return nil
	}
	defer s.a.own.give()
	if s.ctx.Err() == nil {
		s.a.cfg.State.Bookmark(resourceVersion)
	}
	return nil
}

// replayed reports whether an ADDED or MODIFIED event is of an object that is known to be gone. The
// position cannot tell: objects that changed in one transaction have one resourceVersion, and a
// server that stands in for other ones may send events in any order. put decides about an older
// state of the present object. old is the object of the store; nil: none.
func replayed(gone *deletes, old, o *event.Object) bool {
	if old == nil {
		return gone.has(o)
	}
	return old.UID() != o.UID() && persist.NotAbove(o.ResourceVersion(), old.ResourceVersion())
}

// put applies the present state o of an object. The turn is held. old is the object of the store
// under the key of o; nil: none. rewound: a state older than the cache's is the truth and no replay.
// applied is the resourceVersion of the event; empty: it is none.
func (a *Applier) put(ctx context.Context, old, o *event.Object, rewound bool, applied string) bool {
	if old == nil {
		return a.apply(ctx, change{op: event.Added, now: o, applied: applied})
	}
	if old.UID() != o.UID() { // the end of the former object was not seen
		return a.apply(ctx, change{op: event.Deleted, before: old, old: a.cfg.State.Latest(old), stale: true}) &&
			a.apply(ctx, change{op: event.Added, now: o, applied: applied})
	}
	identityOnly := a.cfg.State.IdentityOnly(old)
	sameVersion, versioned := old.ResourceVersion() == o.ResourceVersion(), o.ResourceVersion() != ""
	if sameVersion && versioned && (!rewound || identityOnly || !a.differs(old, o)) {
		if identityOnly || isIncomplete(a, old, o) {
			a.cfg.State.FillIn(old, o, !identityOnly || old.IsUnknown())
		}
		return true
	}
	if sameVersion && !versioned && !a.differs(old, o) {
		return true // some APIs give no versions, so the contents decide
	}
	if !rewound && persist.Older(o, old) {
		return true
	}
	c := change{op: event.Updated, before: old, old: old, now: o, applied: applied}
	if identityOnly {
		c.old = recalled(old, o)
	}
	return a.apply(ctx, c)
}

// recalled returns the former state of an object of which only the identity was restored, with
// placeholders for unknown values; nil: old is not bare.
func recalled(old, now *event.Object) *event.Object {
	if !old.IsBare() {
		return nil
	}
	return old.Recalled(now)
}

// remove applies a DELETED event. o is the last state of the object. The turn is held.
func (a *Applier) remove(ctx context.Context, o *event.Object) {
	old := a.cfg.State.Get(o.Key())
	if known := old != nil && !persist.Older(o, old); known { // otherwise never seen, or a replay
		if old.UID() == o.UID() {
			a.leave(ctx, old, o, false, o.ResourceVersion())
			return
		}
		// The known object was gone when its name was used again, unless the event replays the end
		// of a former one.
		if !persist.NotAbove(o.ResourceVersion(), old.ResourceVersion()) {
			a.leave(ctx, old, a.cfg.State.Latest(old), true, o.ResourceVersion())
		}
	}
	if ended(a, o) != nil { // its ADDED could not be read
		a.leave(ctx, nil, o, false, o.ResourceVersion())
	}
}

// ended returns the intent that a DELETED event ends, of an object that is not in the store; nil:
// none, or a former run has told its end.
func ended(a *Applier, o *event.Object) *event.Object {
	if a.cfg.State.Position.Repeats(o.ResourceVersion()) {
		return nil
	}
	return a.cfg.State.Intent(o.UID())
}

// leave applies that an object is no longer in the watch. If it may have been deselected and not
// deleted, that waits for the answer of the API server. before is the object of the store, last its
// last state. The turn is held.
func (a *Applier) leave(ctx context.Context, before, last *event.Object, stale bool, applied string) {
	c := change{op: event.Deleted, before: before, old: last, stale: stale, applied: applied}
	if !a.cfg.Selective {
		a.apply(ctx, c)
		return
	}
	if !a.held.later(last.Key(), func(context.Context) { a.held.hold(c) }) {
		a.held.hold(c)
	}
}
