package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// retryPause is the pause after an object that could not be emitted.
const retryPause = time.Second

// resolveChanges finds the dependents of the waiting changes, until ctx is done. It does not wait
// for room: the next change could undo one that waited, and expressions that were evaluated in
// between would keep their results.
func (q *Watches) resolveChanges(ctx context.Context, one *watchedRoute) {
	for _, source := range one.lookups {
		select {
		case <-q.deps.Factory.Synced(source):
		case <-ctx.Done():
			return
		}
	}
	// a dependent may be among the saved objects
	if q.deps.Factory.AwaitLoaded(ctx) != nil {
		return
	}
	for ctx.Err() == nil {
		c, waits := one.first()
		if !waits {
			select {
			case <-one.wake:
			case <-ctx.Done():
			}
			continue
		}
		refs := q.dependents(ctx, one, c.delta)
		if ctx.Err() == nil { // otherwise the evaluation was cut short, and the change stays
			q.resolved(one, c, refs)
		}
	}
}

// first returns the change that has waited longest.
func (one *watchedRoute) first() (c change, waits bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.changes) == 0 {
		return c, false
	}
	return one.changes[0], true
}

// resolved makes the dependents of a change due and removes the change, unless a change that
// everything depends on has replaced it.
func (q *Watches) resolved(one *watchedRoute, c change, refs []cel.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one.mu.Lock()
	if len(one.changes) > 0 && one.changes[0].n == c.n {
		one.changes = one.changes[1:]
		one.changeJournal.remove(c.n)
		for _, ref := range refs {
			one.enqueue(ref)
		}
	}
	one.prune()
	one.mu.Unlock()
	q.signal(one)
}

// prune removes due objects that no longer exist, so that their number stays in proportion to that
// of the objects. mu is held.
func (one *watchedRoute) prune() {
	if len(one.order) < 2*one.pruned+maxChanges {
		return
	}
	one.order = slices.DeleteFunc(one.order, func(ref cel.Ref) bool {
		there := slices.ContainsFunc(one.route.From, func(source string) bool {
			o := one.cache.Get(source, ref.Key.Namespace, ref.Key.Name)
			return o != nil && o.UID() == ref.UID
		})
		if !there {
			delete(one.due, ref)
			one.dueJournal.remove(ref)
		}
		return !there
	})
	one.pruned = len(one.order)
}

// putThroughDue emits the due objects, until ctx is done.
func (q *Watches) putThroughDue(ctx context.Context, one *watchedRoute) {
	for ctx.Err() == nil {
		ref, due := one.next()
		if !due {
			select {
			case <-one.more:
			case <-ctx.Done():
			}
			continue
		}
		err := q.putThrough(ctx, one, ref)
		if err == nil {
			q.done(one, ref)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, informer.ErrNotRunning) || errors.Is(err, pipeline.ErrStopped) {
			return // the object is still due, and saved
		}
		q.deps.Log.Error("an object due by watches could not be emitted; retrying", slog.String("route", one.route.Name),
			slog.String("object", ref.Key.String()), slog.Any("err", err))
		_ = timer.Sleep(ctx, retryPause) // the loop checks ctx
	}
}

// next returns the object that has been due longest, which is then being emitted.
func (one *watchedRoute) next() (ref cel.Ref, due bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.putting == nil && len(one.order) > 0 {
		ref = one.order[0]
		one.order = one.order[1:]
		delete(one.due, ref) // it may become due again from now on
		one.putting = &ref
	}
	if one.putting == nil {
		return ref, false
	}
	return *one.putting, true
}

// done records that an object was emitted.
func (q *Watches) done(one *watchedRoute, ref cel.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one.mu.Lock()
	if one.putting != nil && *one.putting == ref {
		one.putting = nil
		if _, again := one.due[ref]; !again {
			one.dueJournal.remove(ref)
		}
	}
	one.mu.Unlock()
	q.signal(one)
}

// objects returns all objects of the route.
func (one *watchedRoute) objects() (refs []cel.Ref) {
	for _, source := range one.route.From {
		for _, o := range one.cache.Lookup(source, "", "") {
			refs = append(refs, cel.Ref{Key: o.Key(), UID: o.UID()})
		}
	}
	return refs
}

// dependents evaluates the expression; without a delta, all objects of the route depend on the
// change. If it fails, no object becomes due; the failure is counted, and logged the first time.
func (q *Watches) dependents(ctx context.Context, one *watchedRoute, d *event.Delta) []cel.Ref {
	if d == nil {
		return one.objects()
	}
	refs, err := one.route.WatchPrograms[d.Source].Objects(ctx, cel.Input{Delta: d, Cache: one.cache})
	if err == nil || ctx.Err() != nil {
		return refs
	}
	kind := "watches"
	if errors.Is(err, cel.ErrAbsent) {
		kind = "absent"
	} else if errors.Is(err, cel.ErrCost) {
		kind = "cost"
	}
	q.deps.Metrics.RouteErrors.WithLabelValues(one.route.Name, kind).Inc()
	// The expression is likely to fail for the next delta, too, and the metric counts all of them.
	one.complain.Do(func() {
		e := one.route.Watches[d.Source]
		at := ""
		if failed, ok := errors.AsType[*cel.EvalError](err); ok {
			at = compile.Place(one.route.Config, &e, failed)
		}
		q.deps.Log.Warn("the expression of watches failed, so no object becomes due for this delta",
			slog.String("route", one.route.Name), slog.String("at", at), slog.String("delta", d.String()), slog.Any("err", err))
	})
	return nil
}

// putThrough emits an object to the route, if the cache still has it.
func (q *Watches) putThrough(ctx context.Context, one *watchedRoute, ref cel.Ref) error {
	name := one.route.Name
	admit := func(ctx context.Context, d *event.Delta) (event.Admission, error) {
		q.deps.Taps.OfferThrough(d, name)
		return q.deps.Pipeline.AdmitTo(ctx, name, d)
	}
	if err := q.deps.Pipeline.AwaitRoom(ctx, name); err != nil {
		return err
	}
	round := q.deps.Clock.Now()
	for _, source := range one.route.From {
		if err := q.deps.Factory.ResyncObject(ctx, source, ref.Key, ref.UID, round, admit); err != nil {
			return err
		}
	}
	return nil
}
