package persist

import (
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// dirtySet is what changed in a watch since it was handed over to the checkpoint, and which objects
// no cut on disk has. The lock of the State guards it.
type dirtySet struct {
	gate func(o *event.Object) <-chan struct{}
	// changed is what each object that changed has become; nil: it is gone.
	changed map[event.Key]*event.Object
	// unpersisted has the uids that came since the last hand-over, inFlight those that were handed
	// over and are not known to be on disk.
	unpersisted, inFlight map[string]gated
	settled               map[string]event.Key // by uid
	// These were handed over last.
	cluster, fed string
	relisting    bool
}

// gated is what the gate of an object was asked for; zero: nobody needed one.
type gated struct {
	gate <-chan struct{}
	with *event.Object
}

// holds reports whether the gate was asked for with the state of o, or with a later one: that is
// told again after a crash.
func (g gated) holds(o *event.Object) bool {
	return g.with == o || g.with.Raw() == o.Raw() || Older(o, g.with)
}

func newDirtySet(gate func(o *event.Object) <-chan struct{}) *dirtySet {
	return &dirtySet{
		gate: gate, changed: make(map[event.Key]*event.Object), unpersisted: make(map[string]gated),
		settled: make(map[string]event.Key),
	}
}

// put notes the present state of an object, and holds the deltas that are about to be committed
// back until it is on disk, where that is necessary.
func (d *dirtySet) put(o *event.Object, added bool, wanted []*event.Delta) {
	d.changed[o.Key()] = o
	if added && o.UID() != "" {
		if _, known := d.pending(o.UID()); !known {
			d.unpersisted[o.UID()] = gated{}
		}
	}
	d.hold(o, wanted)
}

// hold makes deltas about o, which the store has, wait until o is on disk, as it is in them: a
// route that was told of it in this state is told of its end by this state, after a crash as well.
// That goes for objects that no cut has, and for those that a route is told of because of this
// change.
func (d *dirtySet) hold(o *event.Object, wanted []*event.Delta) {
	if len(wanted) == 0 {
		return
	}
	g, pending := d.pending(o.UID())
	enters := slices.ContainsFunc(wanted, func(delta *event.Delta) bool { return delta.Transit().Enters })
	if !pending && !enters {
		return
	}
	// An object that is handed over, and not wanted for the first time, is about to be in a cut.
	if _, unpersisted := d.unpersisted[o.UID()]; g.gate == nil || (unpersisted || enters) && !g.holds(o) {
		g = gated{d.gate(o), o}
		// Only a cut from here on is sure to be written after the intent and to supersede it.
		delete(d.settled, o.UID())
		d.unpersisted[o.UID()], d.changed[o.Key()] = g, o
	}
	for _, delta := range wanted {
		delta.Transit().Durable = g.gate
	}
}

// remove notes that o is gone. stored: the store had it; if not, it was only an intent. A delta
// that says so need not be held back for the sake of o: there is nothing left to miss. It waits
// where those before it do.
func (d *dirtySet) remove(o *event.Object, stored bool, wanted []*event.Delta) {
	if stored {
		d.changed[o.Key()] = nil
	}
	g, _ := d.pending(o.UID())
	for _, delta := range wanted {
		delta.Transit().Durable = g.gate
	}
	d.settle(o)
}

// settle notes that nothing needs to be known of an incarnation any more.
func (d *dirtySet) settle(o *event.Object) {
	uid := o.UID()
	if g, pending := d.pending(uid); pending {
		delete(d.unpersisted, uid)
		delete(d.inFlight, uid)
		if g.gate != nil {
			d.forget(o, nil)
		}
	}
}

// forget notes that an intent is to be forgotten. named is the object that has its name now, nil if
// there is none.
func (d *dirtySet) forget(o, named *event.Object) {
	d.settled[o.UID()] = o.Key()
	if named != nil {
		d.changed[o.Key()] = named
	}
}

// pending reports whether no cut on disk is known to have a uid, and its gate if there is one.
func (d *dirtySet) pending(uid string) (g gated, pending bool) {
	if g, pending = d.unpersisted[uid]; !pending {
		g, pending = d.inFlight[uid]
	}
	return g, pending
}

// handOver takes out what changed. The lists are made of the maps later, by list, when the lock is
// free again.
func (d *dirtySet) handOver(c *Changes) (changed map[event.Key]*event.Object, settled map[string]event.Key) {
	c.Changed = len(d.changed) > 0 || len(d.settled) > 0 || d.cluster != c.Cluster || d.fed != c.Applied || d.relisting != c.Relisting
	d.cluster, d.fed, d.relisting = c.Cluster, c.Applied, c.Relisting
	if len(d.changed) > 0 {
		changed, d.changed = d.changed, make(map[event.Key]*event.Object)
	}
	if len(d.settled) > 0 {
		settled, d.settled = d.settled, make(map[string]event.Key)
	}
	switch {
	case len(d.unpersisted) == 0:
	case len(d.inFlight) == 0:
		d.inFlight, d.unpersisted = d.unpersisted, make(map[string]gated)
	default: // the last hand-over could not be written yet
		maps.Copy(d.inFlight, d.unpersisted)
		clear(d.unpersisted)
	}
	return changed, settled
}

func (c *Changes) list(changed map[event.Key]*event.Object, settled map[string]event.Key) {
	if len(changed) > 0 {
		c.Put = make([]*event.Object, 0, len(changed))
	}
	for key, o := range changed {
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
