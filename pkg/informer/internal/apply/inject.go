package apply

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Exists applies an initial object.
func (a *Applier) Exists(ctx context.Context, o *event.Object) error {
	if !a.turn.take(ctx) {
		return ctx.Err()
	}
	defer a.turn.give()
	if a.cfg.State.Get(o.Key()) == nil {
		a.apply(ctx, change{op: event.Added, now: o, initial: true})
	} else {
		a.put(ctx, a.cfg.State.Get(o.Key()), o, false, "")
	}
	return ctx.Err()
}

// Put applies the present state of an object.
func (a *Applier) Put(ctx context.Context, o *event.Object) error {
	if !a.turn.take(ctx) {
		return ctx.Err()
	}
	defer a.turn.give()
	a.put(ctx, a.cfg.State.Get(o.Key()), o, false, o.ResourceVersion())
	return ctx.Err()
}

// Leave applies that an object was Deleted or Deselected, if the store has it. last is its last
// state; nil: the object of the store. stale: the change was inferred.
func (a *Applier) Leave(ctx context.Context, op event.Op, key event.Key, last *event.Object, stale bool, applied string) error {
	if !a.turn.take(ctx) {
		return ctx.Err()
	}
	defer a.turn.give()
	if old := a.cfg.State.Get(key); old != nil {
		if last == nil {
			last = old
		}
		a.apply(ctx, change{op: op, before: old, old: last, stale: stale, applied: applied})
	}
	return ctx.Err()
}
