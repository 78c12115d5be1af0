package informer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
)

// disk is a checkpoint, whose writes succeed or fail.
type disk struct {
	fed       string
	relisting bool
	objects   map[event.Key]*event.Object
	intents   []intended
	kept      []Changes  // what is not written yet
	asked     []intended // what the gate was asked for and is not written yet, but will be before or with kept
	later     []intended // the same, after kept
}

type intended struct {
	uid  string
	key  event.Key
	gate chan struct{}
}

// writeIntents opens the gates.
func (d *disk) writeIntents() {
	for _, i := range d.asked {
		d.intents = append(d.intents, i)
		close(i.gate)
	}
	d.asked = nil
}

func (d *disk) forget(uid string) {
	d.intents = slices.DeleteFunc(d.intents, func(i intended) bool { return i.uid == uid })
}

func (d *disk) collect(w *Watch) {
	d.kept = append(d.kept, w.Dirty())
	d.asked, d.later = append(d.asked, d.later...), nil
}

// write writes what was collected.
func (d *disk) write(w *Watch) {
	d.writeIntents()
	for _, c := range d.kept {
		d.fed, d.relisting = c.Fed, c.Relisting
		for _, key := range c.Deleted {
			delete(d.objects, key)
		}
		for _, gone := range c.Settled {
			delete(d.objects, gone.Key)
			d.forget(gone.UID)
		}
		for _, o := range c.Put {
			d.objects[o.Key()] = o
			d.forget(o.UID())
		}
	}
	if d.kept = nil; w != nil {
		w.Saved()
	}
	d.asked, d.later = d.later, nil
}

func (d *disk) restored(t *rapid.T) Restored {
	r := Restored{Fed: d.fed, Relisting: d.relisting, Objects: slices.Collect(maps.Values(d.objects))}
	for _, i := range d.intents {
		o, err := event.ParseObject(podResource(), identityText("", "", i.key, i.uid, ""))
		if err != nil {
			t.Fatal(err)
		}
		r.Objects = append(r.Objects, o)
	}
	return r
}

// life is what was told of a uid.
type life struct {
	run, version int // of the last delta
	gone         bool
	key          event.Key
}

// world is a cluster, a watch of it that crashes, a disk, and somebody who remembers all that was ever told.
type world struct {
	t       *rapid.T
	cluster map[string]*event.Object
	history []happening
	version int
	uids    int
	disk    *disk
	told    map[string]*life
	run     int
	watch   *Watch
	cache   mapStore
	rs      *reflectorStore
	crash   context.CancelFunc
	reached int            // the version up to which the watch was told
	waiting []*event.Delta // at their gates
}

type happening struct {
	version int
	deleted bool
	o       *event.Object
}

// Admit writes a cut, or crashes, before a delta is applied: also in the middle of a list.
func (w *world) Admit(ctx context.Context, d *event.Delta) (func(), error) {
	switch rapid.IntRange(0, 11).Draw(w.t, "meanwhile") {
	case 0, 1:
		w.save()
	case 2:
		w.crash()
		return nil, ctx.Err()
	case 3, 4:
		if d.Op != event.Deleted {
			return nil, nil // nobody wants it
		}
	}
	return func() { w.waiting = append(w.waiting, d); w.deliver() }, nil
}

// save does a part of what writes a cut: collects it, writes the intents, or writes all of it.
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

// deliver tells everything whose gate is open, each object's deltas in their order.
func (w *world) deliver() {
	behind := map[event.Key]bool{}
	var waiting []*event.Delta
	for _, d := range w.waiting {
		open := !behind[d.Key()]
		if open && d.Durable != nil {
			select {
			case <-d.Durable:
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
		// The order of intents is that of their gates, and after a crash gates are asked for what was over before.
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
	}
	if known.run == w.run && known.gone {
		w.t.Fatalf("%v after its delete", d)
	}
	known.gone, known.run = d.Op == event.Deleted, w.run
}

// saved reports whether the disk has the identity, or else the delete is owed already, which is also on disk.
func (w *world) saved(uid string) bool {
	if slices.ContainsFunc(w.disk.intents, func(i intended) bool { return i.uid == uid }) {
		return true
	}
	for _, d := range w.waiting {
		if d.Op == event.Deleted && d.Object().UID() == uid {
			return true
		}
	}
	for _, o := range w.disk.objects {
		if o.UID() == uid {
			return true
		}
	}
	return false
}

func number(version string) (n int) {
	_, _ = fmt.Sscan(version, &n)
	return n
}

// start starts a run from what is on disk, with a list if it takes one. It returns false if it crashed already.
func (w *world) start(expired bool) bool {
	w.run++
	ctx, cancel := context.WithCancel(w.t.Context())
	w.crash = cancel
	f := New(Config{
		Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler), Downstream: w, Cluster: "test",
		Gate: func(_ string, key event.Key, uid string) <-chan struct{} {
			i := intended{uid: uid, key: key, gate: make(chan struct{})}
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
	w.rs = &reflectorStore{w.watch, ctx}
	w.disk.kept, w.disk.asked, w.disk.later, w.waiting = nil, nil, nil, nil
	w.watch.Restore(w.disk.restored(w.t))
	if !w.watch.resumable.Load() || expired {
		w.watch.resumable.Store(false)
		return w.list()
	}
	w.watch.told = fmt.Sprint(w.version)
	w.watch.resuming(ctx, nil)
	w.reached = number(w.disk.fed)
	_ = w.rs.Replace(nil, w.disk.fed)
	return w.listen()
}

func (w *world) list() bool {
	items := make([]any, 0, len(w.cluster))
	for _, name := range slices.Sorted(maps.Keys(w.cluster)) {
		items = append(items, w.cluster[name])
	}
	w.reached = w.version
	_ = w.rs.Replace(items, fmt.Sprint(w.version))
	return w.rs.ctx.Err() == nil
}

// listen tells the watch what happened since.
func (w *world) listen() bool {
	for _, h := range w.history {
		if h.version <= w.reached {
			continue
		}
		if h.deleted {
			_ = w.rs.Delete(h.o)
		} else {
			_ = w.rs.Update(h.o)
		}
		w.reached = h.version
	}
	if w.reached < w.version {
		_ = w.rs.Bookmark(fmt.Sprint(w.version))
		w.reached = w.version
	}
	return w.rs.ctx.Err() == nil
}

func (w *world) happen() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "name")
	w.version++
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

// Whatever happens, wherever the cuts are and whenever the watch crashes, and whether it can resume then or has to list: the cache
// becomes what the cluster is, whoever was told of an object is told of its delete, and nothing is left on disk that is not there.
func TestCrashProperty(t *testing.T) {
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
					up = up && w.watch.sync(w.rs.ctx, (*w.watch.sources.Load())[0], o.Key(), time.Now(), w.watch.factory.cfg.Downstream.Admit, &Resynced{}) == nil
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
		for range 2 { // also what is only asked for after the first was collected
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
			if !event.Same(w.cache[o.Key()], o) || !event.Same(w.disk.objects[o.Key()], o) {
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
