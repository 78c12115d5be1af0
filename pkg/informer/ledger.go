package informer

import (
	"maps"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Changes is what changed in a watch between two calls of Dirty, and how far it had got at the second. Applied to what was saved
// before, it gives a state that [Watch.Restore] can go on from. Intents for which the Gate was asked before the second call have to
// be written before the changes or with them, and those for which it is asked later after them.
type Changes struct {
	ID        string // of the watch, see [Spec.ID]
	Cluster   string // that the objects are of, see [Client.Identity]; empty: not known
	Changed   bool   // anything did
	Fed       string // the resourceVersion up to which everything is applied; empty: no list was ever complete
	Relisting bool   // some of a list is applied and some is not
	// Put has the latest state of every object that was added or updated, as the store keeps it; Deleted the keys that are gone.
	// No key is in both.
	Put     []*event.Object
	Deleted []event.Key
	// Settled has the objects for which the Gate was asked and which are gone from the watch again: whatever they owe is with the
	// routes, and the intents can be forgotten. An intent whose uid is in Put has been superseded in the same way. Where the name
	// of one of them is in use, the object that has it is in Put.
	Settled []Incarnation
}

// Incarnation is one object of those that have had a name.
type Incarnation struct {
	Key event.Key
	UID string
}

// ledger is what a Watch remembers of itself for the checkpoint. The Watch's cut lock guards it.
type ledger struct {
	gate func(key event.Key, uid string) <-chan struct{}
	// dirty is what each object that changed has become; nil: it is gone.
	dirty map[event.Key]*event.Object
	// fresh has the uids that came since the last Dirty, saving those that were handed over and are not known to be on disk. The
	// values are their gates, nil as long as nobody needed one.
	fresh, saving map[string]<-chan struct{}
	settled       map[string]event.Key // by uid
	// These are what was handed over last.
	cluster, fed string
	relisting    bool
}

func newLedger(gate func(key event.Key, uid string) <-chan struct{}) *ledger {
	return &ledger{
		gate: gate, dirty: make(map[event.Key]*event.Object), fresh: make(map[string]<-chan struct{}), settled: make(map[string]event.Key),
	}
}

// put notes what an object is now, and makes the deltas that are about to be committed wait for its identity if they have to.
func (l *ledger) put(o *event.Object, added bool, wanted []*event.Delta) {
	l.dirty[o.Key()] = o
	if added && o.UID() != "" {
		if _, known := l.pending(o.UID()); !known {
			l.fresh[o.UID()] = nil
		}
	}
	l.hold(o, wanted)
}

// hold makes deltas about o, which the store has, wait until the identity of o is on disk.
func (l *ledger) hold(o *event.Object, wanted []*event.Delta) {
	if len(wanted) == 0 {
		return
	}
	gate, pending := l.pending(o.UID())
	if !pending {
		return
	}
	if gate == nil {
		gate = l.gate(o.Key(), o.UID())
		// Only a cut from here on is sure to be written after the intent and to supersede it.
		delete(l.settled, o.UID())
		l.fresh[o.UID()], l.dirty[o.Key()] = gate, o
	}
	for _, d := range wanted {
		d.Durable = gate
	}
}

// remove notes that o is gone. stored: the store had it; if not, it was only an intent. A delta that says so need not be held
// back for the sake of o: there is nothing left to miss. It waits where those before it do.
func (l *ledger) remove(o *event.Object, stored bool, wanted []*event.Delta) {
	if stored {
		l.dirty[o.Key()] = nil
	}
	gate, _ := l.pending(o.UID())
	for _, d := range wanted {
		d.Durable = gate
	}
	l.settle(o)
}

// settle notes that nothing needs to be known of an incarnation any more.
func (l *ledger) settle(o *event.Object) {
	uid := o.UID()
	if gate, pending := l.pending(uid); pending {
		delete(l.fresh, uid)
		delete(l.saving, uid)
		if gate != nil {
			l.forget(o, nil)
		}
	}
}

// forget notes that an intent is to be forgotten. named is the object that has its name now, nil if there is none.
func (l *ledger) forget(o, named *event.Object) {
	l.settled[o.UID()] = o.Key()
	if named != nil {
		l.dirty[o.Key()] = named
	}
}

// pending reports whether a uid is not known to be on disk, and its gate if there is one.
func (l *ledger) pending(uid string) (gate <-chan struct{}, pending bool) {
	if gate, pending = l.fresh[uid]; !pending {
		gate, pending = l.saving[uid]
	}
	return gate, pending
}

// handOver takes out what changed. The lists are made of the maps later, by list, when the lock is free again.
func (l *ledger) handOver(c *Changes) (dirty map[event.Key]*event.Object, settled map[string]event.Key) {
	c.Changed = len(l.dirty) > 0 || len(l.settled) > 0 || l.cluster != c.Cluster || l.fed != c.Fed || l.relisting != c.Relisting
	l.cluster, l.fed, l.relisting = c.Cluster, c.Fed, c.Relisting
	if len(l.dirty) > 0 {
		dirty, l.dirty = l.dirty, make(map[event.Key]*event.Object)
	}
	if len(l.settled) > 0 {
		settled, l.settled = l.settled, make(map[string]event.Key)
	}
	switch {
	case len(l.fresh) == 0:
	case len(l.saving) == 0:
		l.saving, l.fresh = l.fresh, make(map[string]<-chan struct{})
	default: // what was handed over before could not be written yet
		maps.Copy(l.saving, l.fresh)
		clear(l.fresh)
	}
	return dirty, settled
}

func (c *Changes) list(dirty map[event.Key]*event.Object, settled map[string]event.Key) {
	if len(dirty) > 0 {
		c.Put = make([]*event.Object, 0, len(dirty))
	}
	for key, o := range dirty {
		if o != nil {
			c.Put = append(c.Put, o)
		} else {
			c.Deleted = append(c.Deleted, key)
		}
	}
	for uid, key := range settled {
		c.Settled = append(c.Settled, Incarnation{key, uid})
	}
}

// Dirty hands over what changed since the last call, for good: who cannot write it keeps it, and writes it before or together with
// what the next call returns. Without a Gate nothing is kept, and nothing has changed.
func (w *Watch) Dirty() Changes { return handOver([]*Watch{w}, func() {})[0] }

// Saved says that everything that Dirty has handed over so far is on disk. Call it after every write that succeeded, before the
// next Dirty.
func (w *Watch) Saved() {
	w.cut.Lock()
	defer w.cut.Unlock()
	if w.ledger != nil {
		w.ledger.saving = nil
	}
}

// Dirty hands over what changed in each watch, see [Watch.Dirty], all at one moment: it calls also while it holds all of them
// there, so that what is collected in it (what the routes owe) agrees with what Dirty returns. also must not call a Watch.
func (f *Factory) Dirty(also func()) []Changes {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return handOver(f.watches, also)
}

// Saved calls [Watch.Saved] of each watch.
func (f *Factory) Saved() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, w := range f.watches {
		w.Saved()
	}
}

func handOver(watches []*Watch, also func()) []Changes {
	type taken struct {
		dirty   map[event.Key]*event.Object
		settled map[string]event.Key
	}
	all, sets := make([]Changes, len(watches)), make([]taken, len(watches))
	func() {
		for i, w := range watches {
			w.cut.Lock()
			defer w.cut.Unlock()
			all[i] = Changes{ID: w.id, Cluster: w.cluster, Fed: w.fed, Relisting: w.relisting}
			if w.ledger != nil {
				sets[i].dirty, sets[i].settled = w.ledger.handOver(&all[i])
			}
		}
		also()
	}()
	for i := range all {
		all[i].list(sets[i].dirty, sets[i].settled)
	}
	return all
}
