package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// reflectorStore is what the Reflector writes to. Its methods return no errors, because client-go would log the object with them,
// and none of them waits longer than ctx: once ctx is done nothing is applied any more.
type reflectorStore struct {
	w   *Watch
	ctx context.Context //nolint:containedctx // client-go's interface has no place for it
}

// Add implements cache.ReflectorStore.
func (s *reflectorStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore. ADDED and MODIFIED are treated alike: the store knows better what is new.
func (s *reflectorStore) Update(obj any) error {
	if o, ok := obj.(*event.Object); ok && !s.w.replayed(o.ResourceVersion()) && s.w.order.take(s.ctx) {
		defer s.w.order.give()
		s.w.fetch(o.Key())
		s.w.put(s.ctx, o, false, o.ResourceVersion())
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *reflectorStore) Delete(obj any) error {
	w := s.w
	if !w.order.take(s.ctx) {
		return nil
	}
	defer w.order.give()
	switch o := obj.(type) {
	case *event.Object:
		if !w.replayed(o.ResourceVersion()) {
			w.fetch(o.Key())
			w.remove(s.ctx, o)
		}
	case placeholder: // what the object was at last cannot be read
		w.fetch(o.Key())
		if old := w.store.Get(o.Key()); old != nil && old.UID() == o.UID() {
			w.leave(s.ctx, old, old, true, o.ResourceVersion())
		} else if old, ok := w.intents[o.UID()]; ok {
			w.leave(s.ctx, nil, old.Object, true, o.ResourceVersion())
		}
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *reflectorStore) Replace(items []any, resourceVersion string) error {
	s.w.replace(s.ctx, items, resourceVersion)
	return nil
}

// Resync implements cache.ReflectorStore. It is not used: see Watch.resync.
func (s *reflectorStore) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *reflectorStore) Bookmark(resourceVersion string) error {
	s.w.cut.Lock()
	defer s.w.cut.Unlock()
	if resourceVersion != "" && s.ctx.Err() == nil && !s.w.replayed(resourceVersion) {
		s.w.advance(resourceVersion)
	}
	return nil
}

// put applies what an object is now. order is held. rewound: an older state than the cache's is no replay but the truth. fed is the
// resourceVersion up to which everything is applied then; empty: it stays what it was.
func (w *Watch) put(ctx context.Context, o *event.Object, rewound bool, fed string) bool {
	old := w.store.Get(o.Key())
	bare := old != nil && w.bare && isBare(old)
	switch {
	case old == nil:
		return w.apply(ctx, change{op: event.Added, now: o, fed: fed})
	case old.UID() != o.UID():
		return w.apply(ctx, change{op: event.Deleted, before: old, old: old, stale: true}) &&
			w.apply(ctx, change{op: event.Added, now: o, fed: fed})
	case old.ResourceVersion() == o.ResourceVersion() && o.ResourceVersion() != "" && (!rewound || bare || !w.differs(old, o)):
		if bare {
			w.fillIn(old, o)
		}
		return true
	case !rewound && older(o, old):
		return true
	}
	c := change{op: event.Updated, before: old, old: old, now: o, fed: fed}
	if bare {
		c.old = nil
	}
	return w.apply(ctx, c)
}

// fillIn gives the store the object of which it has the identity. That is no change of the object.
func (w *Watch) fillIn(old, o *event.Object) {
	w.cut.Lock()
	defer w.cut.Unlock()
	w.store.Put(o)
	w.measure(old, o)
}

// replayed reports whether an event is known to have been applied already: the versions of a watch only grow. Only the Reflector's
// goroutine calls it, which is also the only one that writes fed.
func (w *Watch) replayed(version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, w.fed)
	return err == nil && order <= 0
}

// older reports whether a is known to be an older state than b.
func older(a, b *event.Object) bool {
	return lower(a.ResourceVersion(), b.ResourceVersion())
}

// remove applies a DELETED event, whose object is the last state. order is held.
func (w *Watch) remove(ctx context.Context, o *event.Object) {
	old := w.store.Get(o.Key())
	switch {
	case old == nil || older(o, old): // never seen, or a replay of what happened before
	case old.UID() == o.UID():
		w.leave(ctx, old, o, false, o.ResourceVersion())
		return
	default: // the one that we know was gone when the name was used again
		w.leave(ctx, old, old, true, o.ResourceVersion())
	}
	if _, ok := w.intents[o.UID()]; ok { // that it was there could not be read
		w.leave(ctx, nil, o, false, o.ResourceVersion())
	}
}

// leave applies that an object is no longer there, be it deleted or only deselected. before is what the store has of it, last its
// last state. order is held.
func (w *Watch) leave(ctx context.Context, before, last *event.Object, stale bool, fed string) {
	op := event.Deleted
	if w.spec.Selective() {
		gone, err := w.isGone(ctx, last)
		if err != nil {
			return // ctx is done
		}
		if !gone {
			op = event.Deselected
		}
	}
	w.apply(ctx, change{op: op, before: before, old: last, stale: stale, fed: fed})
}

// change is a delta before it is addressed to the sources.
type change struct {
	op       event.Op
	before   *event.Object // what the store has; nil for an intent
	old, now *event.Object // the delta's Old and New
	initial  bool
	stale    bool
	listed   bool
	fed      string // empty: stays
}

// apply admits the change for each source, and then applies it to all that has to agree. order is held. It returns false, and
// has changed nothing, if ctx is done.
func (w *Watch) apply(ctx context.Context, c change) bool {
	kept := c.now
	if w.spec.identityOnly() && c.now != nil {
		kept = identityOf(c.now)
		if c.op == event.Updated {
			c.old = nil
		}
	}
	c.listed = w.relisting // written by this goroutine alone
	seen := w.factory.cfg.Clock.Now()
	w.commits, w.wanted = w.commits[:0], w.wanted[:0]
	for _, s := range *w.sources.Load() {
		if !w.admit(ctx, s, c, seen) {
			return false
		}
	}
	w.cut.Lock()
	w.keep(&c, kept)
	for _, commit := range w.commits {
		commit()
	}
	if c.fed != "" {
		w.advance(c.fed)
	}
	w.cut.Unlock()
	w.measure(c.before, kept)
	w.applied++
	for _, s := range *w.sources.Load() {
		s.deltas[c.op].Inc()
	}
	return true
}

// keep brings the store and what is kept for the checkpoint up to date. cut is held.
func (w *Watch) keep(c *change, kept *event.Object) {
	if kept != nil {
		w.store.Put(kept)
		if len(w.intents) > 0 {
			w.resolveIntent(kept.UID(), true)
		}
		if w.ledger != nil {
			w.ledger.put(kept, c.op == event.Added, w.wanted)
		}
		return
	}
	if c.before != nil {
		w.store.Delete(c.before.Key())
	}
	if len(w.intents) > 0 {
		w.resolveIntent(c.old.UID(), false)
	}
	if w.ledger != nil {
		w.ledger.remove(c.old, c.before != nil, w.wanted)
	}
}

// returns reports whether what is added may have been there before: it left the selector, or was delivered before a crash.
func (w *Watch) returns(c change) bool {
	if c.op != event.Added {
		return false
	}
	_, intended := w.intents[c.now.UID()]
	return intended || w.spec.Selective()
}

// admit waits for room for the change as a delta of s. It returns false if ctx is done.
func (w *Watch) admit(ctx context.Context, s *source, c change, seen time.Time) bool {
	if ctx.Err() != nil {
		return false
	}
	d := &event.Delta{
		Source: s.Name, Op: c.op, Old: c.old, New: c.now, Initial: c.initial, Stale: c.stale, Listed: c.listed, Seen: seen,
		Selective: w.returns(c),
	}
	if c.initial {
		d.Epoch = w.epoch
	}
	commit, err := w.factory.cfg.Downstream.Admit(ctx, d)
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		w.log.Error("delta was not admitted and is lost", "delta", d.String(), "err", err)
	}
	if commit != nil {
		w.commits, w.wanted = append(w.commits, commit), append(w.wanted, d)
	}
	return true
}

// measure keeps the metrics of what is in the store.
func (w *Watch) measure(before, now *event.Object) {
	objects, bytes := 0, 0
	if before != nil {
		objects, bytes = -1, -before.Size()
	}
	if now != nil {
		objects, bytes = objects+1, bytes+now.Size()
	}
	for _, s := range *w.sources.Load() {
		if bytes != 0 {
			s.bytes.Add(float64(bytes))
		}
		if objects != 0 {
			s.objects.Add(float64(objects))
		}
	}
}
