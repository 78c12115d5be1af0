package apply

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// within is the part of an [Applier] that keeps only the objects in some namespaces; nil: the
// applier keeps all.
type within struct {
	*Namespaces

	a    *Applier
	late *reflector.Late
}

// outside reports whether an object is in a namespace that the watch does not keep.
func (w *within) outside(o *event.Object) bool { return w != nil && !w.Has(o.Key().Namespace) }

// include applies the present objects in a namespace that the watch begins to keep: they are added,
// not initial. It returns false if ctx is done.
func (w *within) include(ctx context.Context, namespace string) bool {
	a := w.a
	if !a.own.take(ctx) {
		return false
	}
	defer a.own.give()
	w.late.Add(namespace)
	if !a.listed { // the first list has them
		return true
	}
	if !w.isReady() { // the watch does not run yet, and need not resume
		w.mustList()
		return true
	}
	if !a.cfg.State.Loader().Wait(ctx) || !a.held.await(ctx, 0) {
		return false
	}
	items, err := a.cfg.Inquiry.List(ctx, namespace)
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		a.cfg.Log.Warn("a selected namespace cannot be listed; the resource is listed as a whole", "watch", a.cfg.Watch, "namespace", namespace, "err", err)
		w.mustList()
		a.cfg.Relists.Ask()
		return true
	}
	in := func(o *event.Object) bool { return o.Key().Namespace == namespace }
	if !a.removeMissing(ctx, items, in) || !a.putAll(ctx, items, false) {
		return false
	}
	a.cfg.Log.Info("namespace selected", "watch", a.cfg.Watch, "namespace", namespace, "objects", len(items))
	return true
}

// mustList makes the watch list, even after a crash: its objects are not those of the applied
// resourceVersion.
func (w *within) mustList() {
	w.a.cfg.Plan.MustList()
	w.a.cfg.State.Position.SetRelisting()
}

// leaveOthers applies that the watch keeps no objects outside of its namespaces: they are
// deselected, or deleted if they no longer exist. left is the namespace that has left, for the log;
// empty: none. It returns false if ctx is done.
func (w *within) leaveOthers(ctx context.Context, left string) bool {
	a := w.a
	if !a.own.take(ctx) {
		return false
	}
	defer a.own.give()
	if !a.listed || !w.isReady() { // the start of the watch does it, see Namespaces.Tidy
		return true
	}
	if !a.cfg.State.Loader().Wait(ctx) || !a.held.await(ctx, 0) {
		return false
	}
	before := a.applied.Load()
	if !a.removeMissing(ctx, nil, w.outside) {
		return false
	}
	if left != "" {
		a.cfg.Log.Info("namespace no longer selected", "watch", a.cfg.Watch, "namespace", left, "objects", a.applied.Load()-before)
	}
	return true
}

// expects reports whether the watch is open and has objects in a namespace.
func (w *within) expects(namespace string) bool {
	if synced, reason, _ := w.a.cfg.Health.State(); !synced || reason != "" {
		return false
	}
	for o := range w.a.cfg.State.All() {
		if o.Key().Namespace == namespace {
			return true
		}
	}
	return false
}

// selected returns the items of a list that the watch keeps. Namespaces that the watch began to
// keep after the list was requested are listed once more. complete: none of these lists failed. ok
// is false if ctx is done.
func (w *within) selected(ctx context.Context, items []any) (kept []any, complete, ok bool) {
	if w == nil {
		return items, true, true
	}
	// Of such a namespace the list may have a part only, so its own list replaces that part.
	late := w.late.Take()
	kept = slices.DeleteFunc(items, func(item any) bool {
		o := objectOf(item)
		return o == nil || late[o.Key().Namespace] || w.outside(o)
	})
	complete = true
	for namespace := range late {
		if !w.Has(namespace) {
			continue
		}
		more, err := w.a.cfg.Inquiry.List(ctx, namespace)
		if ctx.Err() != nil {
			return nil, false, false
		}
		if err != nil {
			w.a.cfg.Log.Warn("a selected namespace cannot be listed; the resource is listed again", "watch", w.a.cfg.Watch, "namespace", namespace, "err", err)
			complete = false
		}
		kept = append(kept, more...)
	}
	return kept, complete, true
}

// objectOf returns the object of an item, which may be a placeholder.
func objectOf(item any) *event.Object {
	switch o := item.(type) {
	case *event.Object:
		return o
	case wire.Placeholder:
		return o.Object
	}
	return nil
}
