package informer

import (
	"context"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Saved is where a watch finds what was saved of its objects and not restored yet, see [Restored.Later].
type Saved interface {
	// Object returns what was saved under a key; nil: nothing was.
	Object(key event.Key) (*event.Object, error)
	// Next hands over some more objects, perhaps on several cores at the same time, and returns false when there are no more.
	Next(take func(*event.Object)) (more bool, err error)
}

// loading is a watch whose objects are restored while it watches on already: the first delta after a restart does not wait for all
// objects, but for its own. What needs them all waits: a list, a resync, and that the sources count as synced.
type loading struct {
	from Saved
	done chan struct{} // closed when all are there
	// claimed has the keys that the watch has looked at, and that are its own business since; nil once all objects are there.
	// The watch's cut lock guards it, as the next.
	claimed map[event.Key]bool
	wentOn  bool // the watch has synced but for this
}

// load restores what is left, until ctx is done. The WaitGroup ends with it.
func (w *Watch) load(ctx context.Context) *sync.WaitGroup {
	var loads sync.WaitGroup
	if w.loading != nil && w.loading.claimed != nil {
		loads.Go(func() {
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = w.loading.from.Next(w.restoreUnclaimed); err != nil {
					w.unreadable(err)
					break
				}
			}
			if ctx.Err() == nil {
				w.loaded()
			}
		})
	}
	return &loads
}

// restoreUnclaimed restores an object, unless the watch has looked at its key already.
func (w *Watch) restoreUnclaimed(o *event.Object) {
	put := w.prepare(o)
	w.cut.Lock()
	defer w.cut.Unlock()
	if !w.loading.claimed[o.Key()] {
		put()
		w.measure(nil, o)
	}
}

// loaded is called when all objects are there.
func (w *Watch) loaded() {
	w.cut.Lock()
	l := w.loading
	l.claimed = nil
	wentOn := l.wentOn
	w.cut.Unlock()
	close(l.done)
	if wentOn {
		w.setSynced(true)
	}
}

// fetch restores the object of a key before the watch looks at what the store has under it. It is called by the watch's own goroutine.
func (w *Watch) fetch(key event.Key) {
	if w.loading == nil || !w.claim(key) {
		return
	}
	o, err := w.loading.from.Object(key)
	switch {
	case err != nil:
		w.unreadable(err)
	case o != nil:
		put := w.prepare(o)
		w.cut.Lock()
		defer w.cut.Unlock()
		put()
		w.measure(nil, o)
	}
}

// claim reports whether an object was not restored yet; then that is up to the caller.
func (w *Watch) claim(key event.Key) bool {
	w.cut.Lock()
	defer w.cut.Unlock()
	l := w.loading
	if l.claimed == nil || l.claimed[key] {
		return false
	}
	l.claimed[key] = true
	return w.store.Get(key) == nil
}

// unreadable deals with a state file that was whole when it was opened, and is not any more.
func (w *Watch) unreadable(err error) {
	w.log.Error("saved objects cannot be read; the resource is listed", "watch", w.name, "err", err)
	w.askRelist()
}

// awaitLoaded waits until all objects are there. It returns false if ctx is done before.
func (w *Watch) awaitLoaded(ctx context.Context) bool {
	if w.loading == nil {
		return true
	}
	select {
	case <-w.loading.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// AwaitLoaded waits until the watches have restored all that was saved of them, see [Restored.Later], or until ctx is done.
func (f *Factory) AwaitLoaded(ctx context.Context) error {
	f.mu.RLock()
	watches := f.watches
	f.mu.RUnlock()
	for _, w := range watches {
		if !w.awaitLoaded(ctx) {
			return ctx.Err()
		}
	}
	return nil
}
