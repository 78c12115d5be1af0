package persist

import (
	"cmp"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Config has the dependencies of a [State].
type Config struct {
	ID    string // of the watch
	Store Cache
	// IdentityOnly: the watch keeps only the identity of its objects.
	IdentityOnly bool
	// Gate returns, under the lock, a channel that is closed once an object is on disk in this
	// state; nil: there is no checkpoint.
	Gate func(o *event.Object) <-chan struct{}
	// Measure is called with the object of the store before and after a change; nil: no object.
	Measure func(before, now *event.Object)
	// Learn is called for each restored object, one at a time, before the watch runs.
	Learn func(o *event.Object)
	// Unreadable is called when saved objects can no longer be read.
	Unreadable func(err error)
}

// State is the state of a watch. It is safe for concurrent use, except for methods that say that
// they are for the watch's own goroutine, which applies the changes.
type State struct {
	// Position is the applied resourceVersion and the cluster.
	Position *Position

	cfg    Config
	loader atomic.Pointer[Loader] // nil: no further saved object will be restored
	// incomplete: saved objects could not be read, and no list was applied since then.
	incomplete atomic.Bool

	// mu is the cut lock.
	mu    sync.Mutex
	dirty *dirtySet // nil: there is no checkpoint
	kept  string    // see Changes
	// intents are the objects of which a former run may have delivered deltas. Only the watch's own
	// goroutine changes them.
	intents intents
	// resumeTarget is the resourceVersion of the API server when the watch resumed; empty: it did
	// not.
	resumeTarget string
	counting     counting
	// lossy: see Restored; false when the watch has caught up. For the watch's own goroutine.
	lossy bool
	// identities: some objects of the store were restored as identities only, and the next list
	// completes them. For the watch's own goroutine.
	identities bool
}

// New returns an empty State.
func New(cfg Config) *State {
	if cfg.Measure == nil {
		cfg.Measure = func(_, _ *event.Object) {}
	}
	s := &State{cfg: cfg}
	s.Position = &Position{cut: &s.mu}
	if cfg.Gate != nil {
		s.dirty = newDirtySet(cfg.Gate)
	}
	return s
}

// Loader returns the loader of the objects that are not restored yet; nil: all readable ones are.
func (s *State) Loader() *Loader { return s.loader.Load() }

// Get returns the object of a key; nil: none.
func (s *State) Get(key event.Key) *event.Object { return s.cfg.Store.Get(key) }

// All returns all objects of the store.
func (s *State) All() iter.Seq[*event.Object] { return s.cfg.Store.All() }

// Cut calls f while the watch is held, at a moment when the store, the committed deltas and the
// applied resourceVersion agree with each other. relisting: a list is only partly applied.
func (s *State) Cut(f func(applied string, relisting bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.Position.reached(), s.Position.relisting)
}

// Empty reports whether there never was a list, not even a part of one. It is for the watch's own
// goroutine.
func (s *State) Empty() bool {
	for range s.All() {
		return false
	}
	return s.Position.Applied() == "" && len(s.intents) == 0
}

// CanResume reports whether a watch can resume from the state.
func (s *State) CanResume() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Position.applied != "" && s.Position.applied != NeverExisted && !s.Position.relisting && !s.identities
}

// SetResumeTarget records the resourceVersion of the API server, when the watch resumes or later.
func (s *State) SetResumeTarget(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumeTarget = version
}

// IdentityOnly reports whether only the identity of an object of the store was restored. It is for
// the watch's own goroutine.
func (s *State) IdentityOnly(o *event.Object) bool {
	return !s.cfg.IdentityOnly && o.IsBare() || s.identities && IsIdentity(o)
}

// keepsWhole reports whether whole objects are kept, as far as the configuration of the watch keeps
// them.
func keepsWhole(s *State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept == "" || s.kept == kept.Whole().Text()
}

// SetKept sets the text of the fields that all objects of the store have, see [Changes].
func (s *State) SetKept(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = text
}

// Latest returns the last known state of an object of the store: after a crash the routes may have
// received a later one than the store has. It is for the watch's own goroutine.
func (s *State) Latest(o *event.Object) *event.Object { return s.intents.latest(o) }

// Intent returns the object of the intent of a uid; nil: none. It is for the watch's own goroutine.
func (s *State) Intent(uid string) *event.Object { return s.intents[uid].Object }

// Delivered reports whether a former run may have delivered a new object without an intent. It is
// for the watch's own goroutine.
func (s *State) Delivered(o *event.Object) bool {
	if !s.lossy {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lossy = s.resumeTarget == "" || !Lower(s.resumeTarget, o.ResourceVersion())
	return s.lossy
}

// Intents returns the wanted intents of whose uid the store has no object, in the order of their
// creation. It is for the watch's own goroutine.
func (s *State) Intents(want func(*event.Object) bool) []*event.Object {
	return s.intents.apart(s.cfg.Store, want)
}

// BeginReplace is called before the differences between a list and the store are applied. It
// returns the former applied resourceVersion.
func (s *State) BeginReplace() (applied string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Position.relisting, s.resumeTarget = true, ""
	s.counting = counting{stored: s.counting.stored}
	s.Position.unmark()
	return s.Position.reached()
}

// EndReplace is called when the whole list is applied.
func (s *State) EndReplace(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Position.cluster, s.Position.relisting = cmp.Or(s.Position.listing, s.Position.cluster), false
	s.Position.listed(version)
	s.identities, s.lossy = false, false
	s.incomplete.Store(false)
	for uid, i := range s.intents {
		if o := s.Get(i.Key()); o != nil && o.UID() == uid {
			s.endIntent(uid) // a backup may have an older state
		}
	}
}
