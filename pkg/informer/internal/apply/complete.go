package apply

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// isIncomplete reports whether an object of the store, which is in the same state as o, has other
// fields of it: the kept fields have changed.
func isIncomplete(a *Applier, old, o *event.Object) bool {
	return a.cfg.Common != nil && old.Raw() != o.Raw()
}

// Complete replaces the object of the store by o, which has other fields of it, if it is in the
// same state. This is no change: there is no delta. It returns false if the store has another
// state, and the error of ctx.
func Complete(ctx context.Context, a *Applier, o *event.Object) (same bool, err error) {
	if !a.turn.take(ctx) {
		return false, ctx.Err()
	}
	defer a.turn.give()
	old := a.cfg.State.Get(o.Key())
	if old == nil || o.ResourceVersion() == "" || !old.Same(o) {
		return false, nil
	}
	if isIncomplete(a, old, o) {
		a.cfg.State.FillIn(old, o, true)
	}
	return true, nil
}

// Reduce replaces every object of the store by one with fewer fields, which reduce returns. It
// returns the error of ctx.
func Reduce(ctx context.Context, a *Applier, reduce func(*event.Object) *event.Object) error {
	for o := range a.cfg.State.All() {
		if _, err := Complete(ctx, a, reduce(o)); err != nil {
			return err
		}
	}
	return nil
}
