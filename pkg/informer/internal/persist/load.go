package persist

import (
	"context"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Loader restores the objects of a watch while the watch runs already: the first delta after a
// restart waits for its own object only. A list, a resync, and that the sources count as synced
// need all objects and wait for them. If some cannot be read, a list is requested, and only its end
// makes the sources synced.
//
// A nil Loader has restored everything; its methods can be called.
type Loader struct {
	state *State
	from  Saved
	done  chan struct{} // closed when all readable objects are restored

	mu sync.Mutex // taken before the State's lock
	// claimed has the keys that the watch has used, and whose objects Run must not restore any
	// more; nil once Run has passed all objects.
	claimed map[event.Key]bool
	then    []func() // see State.WhenRestored
	ended   bool     // done is closed soon, and then is empty
	// the calls of Fetch that have claimed an object and not restored it yet
	fetching sync.WaitGroup
}

func newLoader(s *State, from Saved) *Loader {
	return &Loader{state: s, from: from, done: make(chan struct{}), claimed: make(map[event.Key]bool)}
}

// Run restores the remaining objects, until ctx is done.
func (l *Loader) Run(ctx context.Context) {
	if l == nil {
		return
	}
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = l.from.Next(l.restore); err != nil {
			l.state.unreadable(err)
			break
		}
	}
	if ctx.Err() == nil {
		l.finish()
	}
}

// restore restores an object, unless the watch has claimed its key.
func (l *Loader) restore(o *event.Object) {
	put := prepare(l.state.cfg.Store, o)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.claimed[o.Key()] {
		l.state.load(o, put)
	}
}

// finish releases the claims and the Loader: later deltas find their objects in the store. Run has
// skipped the objects that were claimed, so finish waits for those that are not in the store yet.
func (l *Loader) finish() {
	l.mu.Lock()
	l.claimed = nil // there are no further claims
	l.mu.Unlock()
	l.fetching.Wait()
	l.mu.Lock()
	then := l.then
	l.then, l.ended = nil, true
	l.mu.Unlock()
	l.state.loader.Store(nil)
	close(l.done)
	if l.state.incomplete.Load() {
		return
	}
	for _, call := range then {
		call()
	}
}

// Fetch restores the object of a key before the watch reads it from the store. It is called by the
// watch's own goroutine.
func (l *Loader) Fetch(key event.Key) {
	if l == nil || !l.claim(key) {
		return
	}
	defer l.fetching.Done()
	o, err := l.from.Object(key)
	if err != nil {
		l.state.unreadable(err)
	} else if o != nil {
		l.state.load(o, prepare(l.state.cfg.Store, o))
	}
}

// claim reports whether the object of a key is not restored yet; the caller then restores it, and
// calls fetching.Done.
func (l *Loader) claim(key event.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claimed == nil || l.claimed[key] {
		return false
	}
	l.claimed[key] = true
	if l.state.Get(key) != nil {
		return false
	}
	l.fetching.Add(1)
	return true
}

// WhenRestored calls f once the store has all saved objects, at once if it does. It never calls f
// if some cannot be read: the end of the list that follows stands for it. Otherwise a rescan would
// take an object that is not in the store yet for one that is gone.
func (s *State) WhenRestored(f func()) {
	if l := s.Loader(); l != nil && l.enlist(f) {
		return
	}
	if !s.incomplete.Load() {
		f()
	}
}

// enlist makes finish call f. It returns false if finish has come before.
func (l *Loader) enlist(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.then = append(l.then, f)
	}
	return !l.ended
}

// unreadable records that the store lacks an object. The record comes before the request for a
// list, whose end removes it.
func (s *State) unreadable(err error) {
	s.incomplete.Store(true)
	s.cfg.Unreadable(err)
}

// Wait waits until all readable objects are restored. It returns false if ctx is done first.
func (l *Loader) Wait(ctx context.Context) bool {
	if l == nil {
		return true
	}
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Restore sets the state to the saved one. It is called once, before the watch runs.
func (s *State) Restore(r *Restored) {
	for _, o := range r.Objects {
		s.RestoreObject(o)
	}
	if r.Later != nil {
		l := newLoader(s, r.Later)
		s.loader.Store(l)
		// Run leaves out claimed objects, as those are that the store has. intend needs the objects
		// of the intents.
		for _, o := range r.Objects {
			l.Fetch(o.Key())
		}
		for _, o := range r.Intents {
			l.Fetch(o.Key())
		}
	}
	s.lossy = r.Lossy
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range r.Intents {
		s.intend(o)
	}
	s.Position.cluster, s.Position.applied, s.Position.relisting = r.Cluster, r.Applied, r.Relisting
	if Lower(r.Applied, r.Reached) { // events of Reached may be missing, so all come again
		s.Position.open, s.Position.saved = r.Reached, r.Reached
	}
	if s.dirty != nil { // the next cut has only differences from the saved state
		s.dirty.cluster, s.dirty.applied, s.dirty.reached, s.dirty.relisting, s.dirty.kept = r.Cluster, r.Applied, s.Position.reached(), r.Relisting, r.Kept
	}
}

// RestoreObject is Restore for one object, and comes before it. It may be called concurrently,
// which speeds up the restore of many objects.
func (s *State) RestoreObject(o *event.Object) {
	put := prepare(s.cfg.Store, o)
	identity := !s.cfg.IdentityOnly && keepsWhole(s) && IsIdentity(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Learn(o)
	s.cfg.Measure(s.Get(o.Key()), o)
	s.counting.change(s.Get(o.Key()) != nil, true)
	put()
	s.identities = s.identities || identity
}

// load is RestoreObject while the watch runs.
func (s *State) load(o *event.Object, put func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put()
	s.counting.change(false, true)
	s.cfg.Measure(nil, o)
}

// prepare does without the lock all work of adding an object to the store that needs no lock.
func prepare(store Cache, o *event.Object) (put func()) {
	if store, ok := store.(interface {
		Prepare(o *event.Object) (put func())
	}); ok {
		return store.Prepare(o)
	}
	return func() { store.Put(o) }
}

// intend adds an intent, unless the store has the object in the same or a later state.
func (s *State) intend(o *event.Object) {
	s.cfg.Learn(o)
	if old := s.Get(o.Key()); old != nil && old.UID() == o.UID() && !Older(old, o) {
		if s.dirty != nil {
			s.dirty.forget(o, old)
		}
		return
	}
	s.intents.add(o)
}
