package informer

import (
	"context"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// replace compares a complete list with the store and applies exactly what differs: first what is gone, then what is there.
func (w *Watch) replace(ctx context.Context, items []any, version string) {
	if ctx.Err() != nil {
		return
	}
	w.cut.Lock()
	fed := w.fed
	w.relisting = true
	w.cut.Unlock()
	if w.listed {
		w.countRelist()
	}
	// The API server answers with nothing older than what it is asked for. If it does, its past has changed: a restored backup.
	order, err := resourceversion.CompareResourceVersion(version, fed)
	rewound := err == nil && order < 0
	if rewound {
		w.log.Warn("the API server has gone back in time; its objects are taken as they are", "watch", w.name)
	}
	if !w.removeMissing(ctx, items) || !w.putAll(ctx, items, rewound) {
		return
	}
	w.unnamed.Store(false)
	w.cut.Lock()
	w.fed, w.relisting = version, false
	w.cut.Unlock()
	w.listed = true
	w.setSynced(true)
}

func (w *Watch) countRelist() {
	reason := w.relistReason()
	for _, s := range w.sources {
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
	w.order.Lock()
	defer w.order.Unlock()
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
	if w.spec.selective() || w.unnamed.Load() {
		existing, err := w.stillThere(ctx, missing)
		if err != nil {
			return false
		}
		exists = func(o *event.Object) bool { return existing[identity{o.Key(), o.UID()}] }
	}
	for _, old := range missing {
		op := event.Deleted
		if exists(old) {
			if !w.spec.selective() {
				continue // it is the item that could not be read
			}
			op = event.Deselected
		}
		w.order.Lock()
		ok := w.apply(ctx, change{op: op, before: old, old: old, stale: true})
		w.order.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

func (w *Watch) missing(items []any) (missing []*event.Object) {
	listed := make(map[event.Key]struct{}, len(items))
	for _, item := range items {
		switch o := item.(type) {
		case *event.Object:
			listed[o.Key()] = struct{}{}
		case placeholder:
			listed[o.Key()] = struct{}{}
		}
	}
	for o := range w.store.All() {
		if _, ok := listed[o.Key()]; !ok {
			missing = append(missing, o)
		}
	}
	return missing
}

// vanish applies that the resource itself does not exist: nothing of it does.
func (w *Watch) vanish(ctx context.Context) {
	for o := range w.store.All() {
		w.order.Lock()
		ok := w.apply(ctx, change{op: event.Deleted, before: o, old: o, stale: true})
		w.order.Unlock()
		if !ok {
			return
		}
	}
	w.absent = true
	w.cut.Lock()
	w.fed = ""
	w.cut.Unlock()
	w.setSynced(false)
}
