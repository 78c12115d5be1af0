package persist

import (
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// dirtySet has the changes of a watch since the last hand-over to the checkpoint, and the objects
// that are in no cut on disk. The lock of the State guards it.
type dirtySet struct {
	gate func(o *event.Object) <-chan struct{}
	// changed has the new state of each changed object; nil: it is gone.
	changed map[event.Key]*event.Object
	// unpersisted has the uids that were added since the last hand-over, inFlight those that were
	// handed over and may not be on disk yet.
	unpersisted, inFlight map[string]gated
	settled               map[string]event.Key // by uid
	// The values of the last hand-over.
	cluster, applied, reached, kept string
	relisting                       bool
}

// gated is a gate and the state with which it was created; zero: no gate was needed.
type gated struct {
	gate <-chan struct{}
	with *event.Object
}

// holds reports whether the gate was created with the state of o, or with a later one, which
// arrives again after a crash.
func (g gated) holds(o *event.Object) bool {
	return g.with == o || g.with.Raw() == o.Raw() || Older(o, g.with)
}

func newDirtySet(gate func(o *event.Object) <-chan struct{}) *dirtySet {
	return &dirtySet{
		gate: gate, changed: make(map[event.Key]*event.Object), unpersisted: make(map[string]gated),
		settled: make(map[string]event.Key),
	}
}

// put records the present state of an object, and if necessary holds back the deltas that are about
// to be committed until it is on disk.
func (d *dirtySet) put(o *event.Object, added bool, wanted []*event.Delta) {
	d.changed[o.Key()] = o
	if added && o.UID() != "" {
		if _, known := d.pending(o.UID()); !known {
			d.unpersisted[o.UID()] = gated{}
		}
	}
	d.hold(o, wanted)
}

// hold makes deltas about o, which the store has, wait until the state of o in them is on disk. A
// route that has received this state must receive the deletion of the object too, even after a
// crash, if it delivers deletions. This concerns objects that no cut has, and objects that enter a
// route with this change.
func (d *dirtySet) hold(o *event.Object, wanted []*event.Delta) {
	if !slices.ContainsFunc(wanted, hasEnd) {
		return
	}
	g, pending := d.pending(o.UID())
	enters := slices.ContainsFunc(wanted, func(delta *event.Delta) bool { return transit.Of(delta).Enters })
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
		if hasEnd(delta) {
			transit.Of(delta).Durable = g.gate
		}
	}
}

// hasEnd reports whether a route that gets the delta delivers the end of its object.
func hasEnd(delta *event.Delta) bool { return !transit.Of(delta).Endless }

// remove notes that o is gone. stored: the store had it; otherwise it was only an intent. The delta
// of the deletion needs no gate of its own, because no later delta can be missed. It waits for the
// gate of the earlier deltas.
func (d *dirtySet) remove(o *event.Object, stored bool, wanted []*event.Delta) {
	if stored {
		d.changed[o.Key()] = nil
	}
	g, _ := d.pending(o.UID())
	for _, delta := range wanted {
		transit.Of(delta).Durable = g.gate
	}
	d.settle(o)
}

// settle notes that an incarnation needs no intent and no cut any more.
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

// forget records that an intent can be deleted. named is the object that has its name now; nil:
// none.
func (d *dirtySet) forget(o, named *event.Object) {
	d.settled[o.UID()] = o.Key()
	if named != nil {
		d.changed[o.Key()] = named
	}
}

// pending reports whether the uid may be in no cut on disk, and returns its gate if it has one.
func (d *dirtySet) pending(uid string) (g gated, pending bool) {
	if g, pending = d.unpersisted[uid]; !pending {
		g, pending = d.inFlight[uid]
	}
	return g, pending
}

// handOver takes the changes out of the set. list makes lists of the maps later, after the lock is
// released.
func (d *dirtySet) handOver(c *Changes) (changed map[event.Key]*event.Object, settled map[string]event.Key) {
	c.Changed = len(d.changed) > 0 || len(d.settled) > 0 || d.cluster != c.Cluster || d.applied != c.Applied || d.reached != c.Reached || d.relisting != c.Relisting || d.kept != c.Kept
	d.cluster, d.applied, d.reached, d.relisting, d.kept = c.Cluster, c.Applied, c.Reached, c.Relisting, c.Kept
	if len(d.changed) > 0 {
		changed, d.changed = d.changed, make(map[event.Key]*event.Object)
	}
	if len(d.settled) > 0 {
		settled, d.settled = d.settled, make(map[string]event.Key)
	}
	if len(d.unpersisted) == 0 {
		return changed, settled
	}
	if len(d.inFlight) == 0 {
		d.inFlight, d.unpersisted = d.unpersisted, make(map[string]gated)
	} else { // the last hand-over could not be written yet
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
