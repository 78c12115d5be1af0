package informer

import (
	"cmp"
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// replace compares a complete list with the store and applies exactly what differs: first what is gone, then what is there.
func (w *Watch) replace(ctx context.Context, items []any, version string) {
	if ctx.Err() != nil {
		return
	}
	if w.resumed.Swap(false) {
		w.goOn()
		return
	}
	if !w.awaitLoaded(ctx) {
		return
	}
	applied := w.applied
	w.cut.Lock()
	fed := w.fed
	w.relisting, w.told = true, ""
	w.cut.Unlock()
	if w.listed {
		w.countRelist()
	}
	// The API server answers with nothing older than what it is asked for. If it does, its past has changed: a restored backup.
	rewound := lower(version, fed)
	if rewound && !w.moving() {
		w.log.Warn("the API server has gone back in time; its objects are taken as they are", "watch", w.name)
	}
	if !w.removeMissing(ctx, items) || !w.putAll(ctx, items, rewound || w.latest.Load()) {
		return
	}
	w.unnamed.Store(false)
	w.latest.Store(false)
	w.cut.Lock()
	w.cluster, w.fed, w.relisting = cmp.Or(w.listing, w.cluster), version, false
	w.cut.Unlock()
	w.listed, w.bare = true, false
	w.setSynced(true)
	w.endRelists(Relisted{Objects: len(items), Deltas: w.applied - applied})
}

func (w *Watch) countRelist() {
	reason := w.relistReason()
	for _, s := range *w.sources.Load() {
		s.metrics.Relists.WithLabelValues(s.Name, reason).Inc()
	}
	w.log.Info("listed again, only what differs is put through", "watch", w.name, "reason", reason)
}

// putAll applies every item. Placeholders stand for objects whose state is not known: they stay what they were.
func (w *Watch) putAll(ctx context.Context, items []any, rewound bool) bool {
	for _, item := range items {
		o, ok := item.(*event.Object)
		if !ok {
			continue
		}
		if !w.putListed(ctx, o, rewound) {
			return false
		}
	}
	return true
}

func (w *Watch) putListed(ctx context.Context, o *event.Object, rewound bool) bool {
	if !w.order.take(ctx) {
		return false
	}
	defer w.order.give()
	if !w.listed && !w.absent && w.store.Get(o.Key()) == nil {
		return w.apply(ctx, change{op: event.Added, now: o, initial: true})
	}
	return w.put(ctx, o, rewound, "")
}

// removeMissing applies that what the store has and the list has not is gone.
func (w *Watch) removeMissing(ctx context.Context, items []any) bool {
	missing := w.missing(items)
	if len(missing) == 0 {
		return true
	}
	exists := func(*event.Object) bool { return false }
	if w.spec.Selective() || w.unnamed.Load() {
		existing, err := w.stillThere(ctx, missing)
		if err != nil {
			return false
		}
		exists = func(o *event.Object) bool { return existing[identity{o.Key(), o.UID()}] }
	}
	for _, old := range missing {
		op := event.Deleted
		if exists(old) {
			if !w.spec.Selective() {
				continue // it is the item that could not be read
			}
			op = event.Deselected
		}
		if !w.infer(ctx, op, old) {
			return false
		}
	}
	return true
}

// infer applies that an object, of the store or of an intent, is no longer there.
func (w *Watch) infer(ctx context.Context, op event.Op, old *event.Object) bool {
	if !w.order.take(ctx) {
		return false
	}
	defer w.order.give()
	c := change{op: op, before: old, old: old, stale: true}
	if w.intents[old.UID()].Object == old {
		c.before = nil
	}
	return w.apply(ctx, c)
}

// missing returns what is not in the list: of the store, and then of the intents, whose names may have been used again.
func (w *Watch) missing(items []any) (missing []*event.Object) {
	listed := make(map[event.Key]string, len(items)) // the uid
	for _, item := range items {
		switch o := item.(type) {
		case *event.Object:
			listed[o.Key()] = o.UID()
		case placeholder:
			listed[o.Key()] = o.UID()
		}
	}
	unlisted := func(o *event.Object) bool {
		uid, ok := listed[o.Key()]
		return !ok || uid != o.UID() && uid != ""
	}
	reused := make(map[event.Key]bool) // names of which more than one object is missing, oldest first
	var intents []intent
	for _, i := range w.intents {
		if unlisted(i.Object) {
			intents = append(intents, i)
			reused[i.Key()] = true
		}
	}
	slices.SortFunc(intents, func(a, b intent) int { return cmp.Compare(a.order, b.order) })
	for o := range w.store.All() {
		if _, ok := listed[o.Key()]; !ok || reused[o.Key()] && unlisted(o) {
			missing = append(missing, o)
		}
	}
	for _, i := range intents {
		missing = append(missing, i.Object)
	}
	return missing
}

// vanish applies that the resource itself does not exist: nothing of it does.
func (w *Watch) vanish(ctx context.Context) {
	if !w.awaitLoaded(ctx) {
		return
	}
	for _, o := range w.missing(nil) {
		if !w.infer(ctx, event.Deleted, o) {
			return
		}
	}
	w.absent = true
	w.resumable.Store(false)
	w.cut.Lock()
	w.fed, w.relisting = cmp.Or(w.fed, neverThere), true
	w.cut.Unlock()
	w.setSynced(false)
}
