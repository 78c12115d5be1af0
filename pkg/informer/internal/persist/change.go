package persist

import (
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Change has the effects of one event.
type Change struct {
	// Before is the object of the store, Now the object that replaces it; nil: none.
	Before, Now *event.Object
	// Gone is the last state of an object that was removed; it is set if Now is nil.
	Gone *event.Object
	// Added: the object is new to the watch.
	Added bool
	// Applied is the resourceVersion of the event; empty: the position is unchanged.
	Applied string
	// Admissions commit the deltas of the change, Wanted, to the routes.
	Admissions []event.Admission
	Wanted     []*event.Delta
}

// Apply takes the cut lock and applies a change to all parts of the state in one step. It is for
// the watch's own goroutine.
func (s *State) Apply(c *Change) {
	s.mu.Lock()
	s.counting.pass(c.Applied)
	s.counting.change(c.Before != nil, c.Now != nil)
	if c.Now != nil {
		s.put(c)
	} else {
		s.remove(c)
	}
	for _, admission := range c.Admissions {
		admission.Commit()
	}
	s.Position.arrive(c.Applied)
	endIntents(s)
	s.mu.Unlock()
	s.cfg.Measure(c.Before, c.Now)
}

func (s *State) put(c *Change) {
	s.cfg.Store.Put(c.Now)
	if len(s.intents) > 0 {
		s.intentStored(c.Now)
	}
	if s.dirty != nil {
		s.dirty.put(c.Now, c.Added, c.Wanted)
	}
}

func (s *State) remove(c *Change) {
	if c.Before != nil {
		s.cfg.Store.Delete(c.Before.Key())
	}
	if len(s.intents) > 0 {
		s.endIntent(c.Gone.UID())
	}
	if s.dirty != nil {
		s.dirty.remove(c.Gone, c.Before != nil, c.Wanted)
	}
}

// FillIn completes an object of which the store has only some fields. The object itself has not
// changed. save: the next cut has it; otherwise no cut may have more of it, or each has it already.
func (s *State) FillIn(old, o *event.Object, save bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Store.Put(o)
	if save && s.dirty != nil {
		s.dirty.changed[o.Key()] = o
	}
	s.cfg.Measure(old, o)
}

// Commit commits a delta about an object as it is in the store, and leaves the store unchanged.
func (s *State) Commit(d *event.Delta, admission event.Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.CommitHeld(d, admission)
}

// CommitHeld is [State.Commit] while the State is held, see [Hold].
func (s *State) CommitHeld(d *event.Delta, admission event.Admission) {
	if s.dirty != nil {
		s.dirty.hold(d.New, []*event.Delta{d})
	}
	admission.Commit()
}

// Arrive records an event without a change, by its resourceVersion.
func (s *State) Arrive(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counting.pass(version)
	s.Position.arrive(version)
	endIntents(s)
}

// Bookmark records a bookmark.
func (s *State) Bookmark(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counting.pass(version)
	s.Position.bookmark(version)
	s.counting.complete(s.Position)
	endIntents(s)
}

// endIntents ends the intents that are left when the watch has caught up. Once a resumed watch has
// reached the resourceVersion that the API server had when the watch resumed, all earlier events
// have arrived. The object of an intent without an event was therefore gone when the state was
// saved.
func endIntents(s *State) {
	if len(s.intents) == 0 || s.resumeTarget == "" || len(s.Position.marks) > 0 {
		return
	}
	if Lower(s.Position.applied, s.resumeTarget) && NotAbove(s.Position.reached(), s.resumeTarget) {
		return
	}
	for uid := range s.intents {
		s.endIntent(uid)
	}
}

// intentStored records that the object of an intent, if there is one, is in the store with the
// state o. The intent ends, unless it has a later state, which will arrive again.
func (s *State) intentStored(o *event.Object) {
	i, ok := s.intents[o.UID()]
	if !ok {
		return
	}
	if !Older(o, i.Object) {
		delete(s.intents, o.UID())
	}
	if s.dirty != nil {
		gate := make(chan struct{})
		close(gate)
		// A former run asked the gate for the state, and the intent is on disk.
		s.dirty.unpersisted[o.UID()] = gated{gate, i.Object}
	}
}

// endIntent ends the intent of a uid, if there is one, because its object is gone.
func (s *State) endIntent(uid string) {
	i, ok := s.intents[uid]
	if !ok {
		return
	}
	delete(s.intents, uid)
	if s.dirty != nil {
		s.dirty.forget(i.Object, s.Get(i.Key()))
	}
}

// Hold takes the locks of all states, so that all are held at one moment.
func Hold(states []*State) (release func()) {
	for _, s := range states {
		s.mu.Lock()
	}
	return func() {
		for _, s := range states {
			s.mu.Unlock()
		}
	}
}

// Cut holds the cut locks of some states at one moment, from [BeginCut] to End.
type Cut struct {
	release func()
	changes []Changes
	taken   []taken
}

// taken has the changes of a state. They are listed once the locks are released.
type taken struct {
	changed map[event.Key]*event.Object
	settled map[string]event.Key
}

// BeginCut takes the cut locks, and the changes of each state since the last cut.
func BeginCut(states []*State) *Cut {
	c := &Cut{changes: make([]Changes, len(states)), taken: make([]taken, len(states)), release: Hold(states)}
	for i, s := range states {
		applied, relisting := s.Position.durable()
		c.changes[i] = Changes{ID: s.cfg.ID, Cluster: s.Position.cluster, Applied: applied, Reached: s.Position.reached(), Relisting: relisting, Kept: s.kept}
		if s.dirty != nil {
			c.taken[i].changed, c.taken[i].settled = s.dirty.handOver(&c.changes[i])
		}
	}
	return c
}

// End releases the cut locks and returns the changes. It is called once.
func (c *Cut) End() []Changes {
	c.release()
	for i := range c.changes {
		c.changes[i].list(c.taken[i].changed, c.taken[i].settled)
	}
	return c.changes
}

// Saved says that everything of the cuts so far is on disk. It is called after every successful
// write, before the next cut.
func (s *State) Saved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty != nil {
		s.dirty.inFlight = nil
	}
}
