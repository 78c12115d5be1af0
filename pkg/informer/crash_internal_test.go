package informer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

// disk is a checkpoint whose writes succeed or fail.
type disk struct {
	fed       string
	reached   string
	relisting bool
	objects   map[event.Key]*event.Object
	intents   []intended
	kept      []Changes // changes that are not written yet
	// States for which the gate was called, and that are written before kept or together with it.
	asked []intended
	later []intended // the same, after kept
}

type intended struct {
	o    *event.Object
	gate chan struct{}
}

// writeIntents opens the gates.
func (d *disk) writeIntents() {
	for _, i := range d.asked {
		if at := slices.IndexFunc(d.intents, func(w intended) bool { return w.o.UID() == i.o.UID() }); at >= 0 {
			d.intents[at] = i
		} else {
			d.intents = append(d.intents, i)
		}
		close(i.gate)
	}
	d.asked = nil
}

func (d *disk) forget(uid string) {
	d.intents = slices.DeleteFunc(d.intents, func(i intended) bool { return i.o.UID() == uid })
}

func (d *disk) collect(w *Watch) {
	d.kept = append(d.kept, w.Dirty())
	d.asked, d.later = append(d.asked, d.later...), nil
}

// write writes the collected changes.
func (d *disk) write(w *Watch) {
	d.writeIntents()
	for _, c := range d.kept {
		d.fed, d.reached, d.relisting = c.Applied, c.Reached, c.Relisting
		for _, key := range c.Deleted {
			delete(d.objects, key)
		}
		for _, gone := range c.Settled {
			delete(d.objects, gone.Key)
			d.forget(gone.UID)
		}
		for _, o := range c.Put {
			d.objects[o.Key()] = o
			if !slices.ContainsFunc(d.intents, func(i intended) bool { return i.o.UID() == o.UID() && persist.Older(o, i.o) }) {
				d.forget(o.UID())
			}
		}
	}
	if d.kept = nil; w != nil {
		w.Saved()
	}
	d.asked, d.later = d.later, nil
}

func (d *disk) restored() Restored {
	r := Restored{Applied: d.fed, Reached: d.reached, Relisting: d.relisting, Objects: slices.Collect(maps.Values(d.objects))}
	for _, i := range d.intents {
		r.Intents = append(r.Intents, i.o)
	}
	return r
}

// life records the deltas of one uid.
type life struct {
	run, version int // of the last delta
	intended     int // the version of the last intent on disk at the time of a delta
	gone         bool
	key          event.Key
}

// world is a cluster, a watch of it that crashes, a disk, and a record of all deltas.
type world struct {
	t       *rapid.T
	cluster map[string]*event.Object
	history []happening
	version int
	// shut: no more changes have the present version, because the cluster told it as complete
	shut    int
	marked  int // the version of the bookmark after which no event was sent; 0: none
	uids    int
	disk    *disk
	told    map[string]*life
	run     int
	watch   *Watch
	cache   mapStore
	rs      cache.ReflectorStore
	ctx     context.Context //nolint:containedctx // of the run
	crash   context.CancelFunc
	reached int            // the number of happenings that the watch received
	waiting []*event.Delta // at their gates
}

type happening struct {
	version int
	deleted bool
	o       *event.Object
}

// Admit writes a cut, or crashes, before a delta is applied, also in the middle of a list.
func (w *world) Admit(ctx context.Context, d *event.Delta) (event.Admission, error) {
	switch rapid.IntRange(0, 11).Draw(w.t, "meanwhile") {
	case 0, 1:
		w.save()
	case 2:
		w.crash()
		return nil, ctx.Err()
	case 3, 4:
		if d.Op != event.Deleted {
			return nil, nil // no route wants it
		}
	}
	transit.Of(d).Enters = d.Op == event.Updated && rapid.IntRange(0, 3).Draw(w.t, "enters") == 0
	return event.CommitFunc(func() { w.waiting = append(w.waiting, d); w.deliver() }), nil
}

// save does a part of writing a cut: it collects it, writes the intents, or writes all of it.
func (w *world) save() {
	switch rapid.IntRange(0, 4).Draw(w.t, "save") {
	case 0:
		w.disk.collect(w.watch)
	case 1:
		w.disk.writeIntents()
		w.deliver()
	case 2: // it fails
	default:
		if len(w.disk.kept) == 0 {
			w.disk.collect(w.watch)
		}
		w.disk.write(w.watch)
		w.deliver()
	}
}

// deliver delivers all deltas with an open gate, those of one object in order.
func (w *world) deliver() {
	behind := map[event.Key]bool{}
	var waiting []*event.Delta
	for _, d := range w.waiting {
		open := !behind[d.Key()]
		if open && transit.Of(d).Durable != nil {
			select {
			case <-transit.Of(d).Durable:
			default:
				open = false
			}
		}
		if open {
			w.tell(d)
			continue
		}
		behind[d.Key()] = true
		waiting = append(waiting, d)
	}
	w.waiting = waiting
}

func (w *world) tell(d *event.Delta) {
	uid, version := d.Object().UID(), number(d.Object().ResourceVersion())
	for other, life := range w.told {
		// Intents are in the order of their gates, and after a crash gates are created for earlier
		// states.
		if life.run == w.run && life.key == d.Key() && number(other) > number(uid) && version > 0 {
			w.t.Fatalf("%v of %s after %s", d, uid, other)
		}
	}
	known := w.told[uid]
	if known == nil {
		known = &life{key: d.Key()}
		w.told[uid] = known
	}
	if d.Op != event.Deleted {
		if !w.saved(uid) {
			w.t.Fatalf("%v of %s, which is not on disk", d, uid)
		}
		if known.run == w.run && (version < known.version || version == known.version && d.Op != event.Sync) {
			w.t.Fatalf("%v from %d to %d", d, known.version, version)
		}
		known.version = version
		known.intended = max(known.intended, w.intendedAt(uid))
		if o := w.disk.objects[d.Key()]; transit.Of(d).Enters && w.intendedAt(uid) < version && (o == nil || o.UID() != uid || number(o.ResourceVersion()) < version) && !w.ending(uid) {
			w.t.Fatalf("%v enters, and is not on disk", d)
		}
		if _, stored := w.disk.objects[d.Key()]; !stored && len(w.disk.kept) == 0 && w.intendedAt(uid) < version && !w.ending(uid) {
			w.t.Fatalf("%v, and the disk has it as of %d", d, w.intendedAt(uid))
		}
	} else if version < known.intended { // even as an identity only
		w.t.Fatalf("%v by a state before %d, in which it was told", d, known.intended)
	}
	if known.run == w.run && known.gone {
		w.t.Fatalf("%v after its delete", d)
	}
	known.gone, known.run = d.Op == event.Deleted, w.run
}

// saved reports whether the disk has the object, or otherwise its delete as a pending delta.
func (w *world) saved(uid string) bool {
	if w.intendedAt(uid) > 0 || w.ending(uid) {
		return true
	}
	for _, o := range w.disk.objects {
		if o.UID() == uid {
			return true
		}
	}
	return false
}

// intendedAt returns the version of the intent on disk; 0: there is none.
func (w *world) intendedAt(uid string) int {
	for _, i := range w.disk.intents {
		if i.o.UID() == uid {
			return number(i.o.ResourceVersion())
		}
	}
	return 0
}

// ending reports whether a delete waits.
func (w *world) ending(uid string) bool {
	return slices.ContainsFunc(w.waiting, func(d *event.Delta) bool { return d.Op == event.Deleted && d.Object().UID() == uid })
}

func number(version string) (n int) {
	_, _ = fmt.Sscan(version, &n)
	return n
}

// start starts a run from the disk, with a list if it needs one. It returns false if the run
// crashed already.
func (w *world) start(expired bool) bool {
	w.run++
	ctx, cancel := context.WithCancel(w.t.Context())
	w.crash = cancel
	f := New(Config{
		Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: w, Cluster: "test",
		Gate: func(_ string, o *event.Object) <-chan struct{} {
			i := intended{o: o, gate: make(chan struct{})}
			if len(w.disk.kept) > 0 {
				w.disk.later = append(w.disk.later, i)
			} else {
				w.disk.asked = append(w.disk.asked, i)
			}
			return i.gate
		},
	})
	w.cache = mapStore{}
	w.watch = f.Watch(*podSpec(), w.cache, Source{Name: "pods"})
	w.rs, w.ctx = w.watch.applier.Store(ctx), ctx
	w.disk.kept, w.disk.asked, w.disk.later, w.waiting = nil, nil, nil, nil
	w.watch.Restore(w.disk.restored())
	if !w.watch.plan.Resumable() || expired {
		w.watch.plan.MustList()
		return w.list()
	}
	w.watch.state.SetResumeTarget(fmt.Sprint(w.version))
	w.shut = w.version
	w.watch.plan.Resumed()
	w.reached, w.marked = 0, 0
	for w.reached < len(w.history) && w.history[w.reached].version <= number(w.disk.fed) {
		w.reached++
	}
	_ = w.rs.Replace(nil, w.disk.fed)
	return w.listen()
}

func (w *world) list() bool {
	items := make([]any, 0, len(w.cluster))
	for _, name := range slices.Sorted(maps.Keys(w.cluster)) {
		items = append(items, w.cluster[name])
	}
	w.reached, w.shut, w.marked = len(w.history), w.version, 0
	_ = w.rs.Replace(items, fmt.Sprint(w.version))
	return w.ctx.Err() == nil
}

// listen sends the watch all later events.
func (w *world) listen() bool {
	for ; w.reached < len(w.history) && w.ctx.Err() == nil; w.reached++ {
		h := w.history[w.reached]
		if w.marked != h.version { // before or between the events of the version
			w.mayBookmark(h.version)
		}
		if w.marked = 0; h.deleted {
			_ = w.rs.Delete(h.o)
		} else {
			_ = w.rs.Update(h.o)
		}
	}
	w.mayBookmark(w.version)
	return w.ctx.Err() == nil
}

// mayBookmark sends a bookmark sometimes. No event of a version follows its second one: a minute is
// between them.
func (w *world) mayBookmark(version int) {
	if rapid.IntRange(0, 3).Draw(w.t, "bookmark") > 0 {
		return
	}
	w.bookmark(version)
}

func (w *world) bookmark(version int) {
	_ = w.rs.(cache.ReflectorBookmarkStore).Bookmark(fmt.Sprint(version))
	if w.marked == version {
		w.shut = version
	}
	w.marked = version
}

func (w *world) happen() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "name")
	if w.shut == w.version || !rapid.Bool().Draw(w.t, "together") || w.changed(name) {
		w.version++
	}
	old := w.cluster[name]
	switch {
	case old == nil:
		w.uids++
		w.cluster[name] = object(w.t, name, w.uids, w.version)
	case rapid.Bool().Draw(w.t, "delete"):
		delete(w.cluster, name)
		w.history = append(w.history, happening{w.version, true, object(w.t, name, number(old.UID()), w.version)})
		return
	default:
		w.cluster[name] = object(w.t, name, number(old.UID()), w.version)
	}
	w.history = append(w.history, happening{w.version, false, w.cluster[name]})
}

// changed reports whether an object of the name has changed at the present version: a transaction
// changes an object once.
func (w *world) changed(name string) bool {
	return slices.ContainsFunc(w.history, func(h happening) bool { return h.version == w.version && h.o.Key().Name == name })
}

// For any events, some with equal versions, cuts and crashes, with a resume or a list afterwards:
// the cache becomes equal to the cluster, every object with a delivered delta gets its delete
// delivered, and the disk keeps no object that the cluster does not have.
func TestCrashProperty(t *testing.T) {
	// Guarantee: delete-has-state
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			t: t, cluster: map[string]*event.Object{}, version: 1, told: map[string]*life{},
			disk: &disk{objects: map[event.Key]*event.Object{}},
		}
		up := w.start(true)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"happen", "happen", "listen", "save", "save", "crash", "relist", "sync"}).Draw(t, "what") {
			case "happen":
				w.happen()
			case "listen":
				up = up && w.listen()
			case "save":
				w.save()
			case "sync":
				for o := range w.cache.All() {
					up = up && w.watch.applier.Sync(w.ctx, w.watch.applier.NewRound(w.watch.sources.All()[0]), o.Key()) == nil
				}
			case "relist":
				up = up && w.list()
			case "crash":
				w.crash()
				up = w.start(rapid.Bool().Draw(t, "expired"))
			}
		}
		for !up || !w.listen() {
			up = w.start(false)
		}
		w.version++ // of another resource
		w.bookmark(w.version)
		w.bookmark(w.version)
		for range 2 { // the second call also collects states whose gate was created after the first
			w.disk.collect(w.watch)
			w.disk.write(w.watch)
			w.deliver()
		}
		w.crash()
		if len(w.cache) != len(w.cluster) || len(w.disk.objects) != len(w.cluster) {
			t.Fatalf("cluster %v, cache %v, disk %v", w.cluster, w.cache, w.disk.objects)
		}
		alive := map[string]bool{}
		for name, o := range w.cluster {
			if !w.cache[o.Key()].Same(o) || !w.disk.objects[o.Key()].Same(o) {
				t.Fatalf("%s: cluster %s, cache %s", name, o.JSON(), w.cache[o.Key()].JSON())
			}
			alive[o.UID()] = true
		}
		for uid, life := range w.told {
			if life.gone == alive[uid] {
				t.Fatalf("%s: alive %v, told to be gone %v", uid, alive[uid], life.gone)
			}
		}
		if len(w.disk.intents) > 0 || w.disk.relisting || number(w.disk.fed) != w.version {
			t.Fatalf("intents %v, relisting %v, fed %s of %d", w.disk.intents, w.disk.relisting, w.disk.fed, w.version)
		}
	})
}
