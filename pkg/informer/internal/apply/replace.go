package apply

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Resume replaces the call of Replace after the watch was resumed: there was no list, and the store
// keeps its objects.
func (a *Applier) Resume() {
	a.cfg.Plan.Done()
	a.cfg.Log.Info("watch resumed", "watch", a.cfg.Watch)
	a.cfg.State.WhenRestored(func() { a.setSynced(true) })
}

// Replace compares a complete list with the store and applies the differences: first the removed
// objects, then the present ones.
func (a *Applier) Replace(ctx context.Context, items []any, version string) {
	if ctx.Err() != nil || !a.own.take(ctx) {
		return
	}
	defer a.own.give()
	if a.cfg.Plan.TakeResumed() {
		if a.cfg.Selects.settled(ctx, a) {
			a.Resume()
		}
		return
	}
	items, complete, ok := a.within.selected(ctx, items)
	if !ok {
		return
	}
	// A saved object that is not in the store yet would look new.
	state, plan := a.cfg.State, a.cfg.Plan
	if !state.Loader().Wait(ctx) {
		return
	}
	before := a.applied.Load()
	last, ok := begin(ctx, a)
	if !ok {
		return
	}
	if a.listed {
		a.countRelist()
	}
	// The API server never answers with an older state than the requested one. An older one means
	// that a backup was restored.
	rewound := persist.Lower(version, last)
	if rewound && !state.Position.Moving() {
		a.cfg.Log.Warn("the API server has gone back in time (a restored backup); its objects replace those of the cache", "watch", a.cfg.Watch)
	}
	held, ok := holdMissing(ctx, a, items)
	if !ok || !a.putAll(ctx, items, rewound || plan.Latest()) || !a.cfg.Selects.settled(ctx, a) {
		return
	}
	if !a.turn.take(ctx) {
		return
	}
	// From here on a restart resumes at the version of the list.
	plan.Listed()
	state.EndReplace(version)
	a.listed = true
	a.turn.give()
	a.initial.Store(false)
	if !complete {
		a.within.mustList()
		defer a.cfg.Relists.Ask()
	}
	a.setSynced(true)
	found := reflector.Relisted{Objects: len(items), Deltas: int(a.applied.Load()-before) + held}
	a.held.afterwards(func() { a.cfg.Relists.End(found) })
}

// begin begins to replace the store, and returns the former applied resourceVersion.
func begin(ctx context.Context, a *Applier) (applied string, ok bool) {
	if !a.turn.take(ctx) {
		return "", false
	}
	defer a.turn.give()
	a.gone.clear() // a restored backup may have the objects again
	return a.cfg.State.BeginReplace(), true
}

func (a *Applier) countRelist() {
	reason := a.cfg.Health.TakeRelistReason()
	a.cfg.Sources.countRelist(reason)
	a.cfg.Log.Info("listed again; only differences become deltas", "watch", a.cfg.Watch, "reason", reason)
}

// putAll applies every item. A placeholder stands for an object whose state is unknown: the object
// of the store stays as it is.
func (a *Applier) putAll(ctx context.Context, items []any, rewound bool) bool {
	for _, item := range items {
		o, ok := item.(*event.Object)
		if !ok {
			continue
		}
		if !a.putListed(ctx, o, rewound) {
			return false
		}
	}
	return true
}

func (a *Applier) putListed(ctx context.Context, o *event.Object, rewound bool) bool {
	if !a.turn.take(ctx) {
		return false
	}
	defer a.turn.give()
	if a.held.get(o.Key()) != nil {
		a.held.later(o.Key(), func(ctx context.Context) { a.put(ctx, a.cfg.State.Get(o.Key()), o, rewound, "") })
		return true
	}
	if !a.listed && !a.absent && a.cfg.State.Get(o.Key()) == nil {
		return a.apply(ctx, change{op: event.Added, now: o, initial: true})
	}
	return a.put(ctx, a.cfg.State.Get(o.Key()), o, rewound, "")
}

// holdMissing applies the end of all objects that are in the store and not in the list. If some may
// have been deselected, that waits for the answer of the API server; held is their number.
func holdMissing(ctx context.Context, a *Applier, items []any) (held int, ok bool) {
	if !a.cfg.Selective || a.cfg.Selects != nil || len(a.cfg.State.Intents(func(*event.Object) bool { return true })) > 0 {
		return 0, a.held.await(ctx, 0) && a.removeMissing(ctx, items, nil)
	}
	if !a.turn.take(ctx) {
		return 0, false
	}
	defer a.turn.give()
	missing := a.missing(items)
	for _, old := range missing {
		hold := func(context.Context) {
			if old := a.cfg.State.Get(old.Key()); old != nil {
				a.held.hold(change{op: event.Deleted, before: old, old: a.cfg.State.Latest(old), stale: true})
			}
		}
		if !a.held.later(old.Key(), hold) {
			hold(ctx)
		}
	}
	return len(missing), true
}

// removeMissing applies the end of all objects that are in the store and not in the list. among
// restricts the objects; nil: all.
func (a *Applier) removeMissing(ctx context.Context, items []any, among func(*event.Object) bool) bool {
	missing := a.missing(items)
	if among != nil {
		missing = slices.DeleteFunc(missing, func(o *event.Object) bool { return !among(o) })
	}
	if len(missing) == 0 {
		return true
	}
	// If an object may be missing without being deleted, the API server is asked; else the list is
	// enough.
	exists := func(*event.Object) bool { return false }
	if a.cfg.Selective || a.cfg.Plan.Unnamed() || slices.ContainsFunc(missing, a.within.outside) {
		existing, err := a.cfg.Inquiry.StillThere(ctx, missing)
		if err != nil {
			return false
		}
		exists = func(o *event.Object) bool { return existing[persist.Incarnation{Key: o.Key(), UID: o.UID()}] }
	}
	for _, old := range missing {
		op := event.Deleted
		if exists(old) {
			if !a.cfg.Selective && !a.within.outside(old) {
				continue // the item that could not be read
			}
			op = event.Deselected
		}
		if !a.infer(ctx, op, old) {
			return false
		}
	}
	return true
}

// infer applies the end of an object, of the store or of an intent.
func (a *Applier) infer(ctx context.Context, op event.Op, old *event.Object) bool {
	if !a.turn.take(ctx) {
		return false
	}
	defer a.turn.give()
	c := change{op: op, before: old, old: a.cfg.State.Latest(old), stale: true}
	if a.cfg.State.Intent(old.UID()) == old {
		c.before = nil
	}
	return a.apply(ctx, c)
}

// missing returns the objects of the store and of the intents that are not in the list. With
// intents several objects may have had one name; the result is then sorted by resourceVersion, so
// that the end of an older object is not emitted after that of a newer one.
func (a *Applier) missing(items []any) (missing []*event.Object) {
	if a.cfg.State.Empty() {
		return nil
	}
	listed := make(map[event.Key]string, len(items)) // the uid
	for _, item := range items {
		switch o := item.(type) {
		case *event.Object:
			listed[o.Key()] = o.UID()
		case wire.Placeholder:
			listed[o.Key()] = o.UID()
		}
	}
	unlisted := func(o *event.Object) bool {
		uid, ok := listed[o.Key()]
		return !ok || uid != o.UID() && uid != ""
	}
	intents := a.cfg.State.Intents(unlisted)
	reused := make(map[event.Key]bool) // names of which several objects may be missing
	for _, o := range intents {
		reused[o.Key()] = true
	}
	for o := range a.cfg.State.All() {
		if _, ok := listed[o.Key()]; !ok || reused[o.Key()] && unlisted(o) {
			missing = append(missing, o)
		}
	}
	if len(intents) == 0 {
		return missing
	}
	missing = append(missing, intents...)
	slices.SortStableFunc(missing, func(a, b *event.Object) int {
		if persist.Older(a, b) {
			return -1
		}
		if persist.Older(b, a) {
			return 1
		}
		return 0 // they cannot be compared
	})
	return missing
}

// Vanish applies that the resource itself does not exist, so that all its objects are gone.
func (a *Applier) Vanish(ctx context.Context) {
	if !a.cfg.State.Loader().Wait(ctx) || !a.own.take(ctx) {
		return
	}
	defer a.own.give()
	if !a.held.await(ctx, 0) {
		return
	}
	if removeAll(ctx, a, nil) != nil {
		return
	}
	a.absent = true
	a.initial.Store(false)
	a.cfg.Plan.MustList()
	a.cfg.State.Position.SetGone()
	a.setSynced(false)
}

// Remove applies that all objects are gone except those with the given uids. It returns the error
// of ctx.
func (a *Applier) Remove(ctx context.Context, except map[string]bool) error {
	if !a.own.take(ctx) {
		return ctx.Err()
	}
	defer a.own.give()
	if !a.held.await(ctx, 0) {
		return ctx.Err()
	}
	return removeAll(ctx, a, except)
}

func removeAll(ctx context.Context, a *Applier, except map[string]bool) error {
	for _, o := range a.missing(nil) {
		if !except[o.UID()] && !a.infer(ctx, event.Deleted, o) {
			return ctx.Err()
		}
	}
	return nil
}
