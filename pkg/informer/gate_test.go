package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// gates returns, for each delta so far, the object and whether it has to wait: "a:waits".
func (s *sink) gates() (all []string) {
	for _, d := range s.peek() {
		text := d.Op.String() + " " + d.Key().Name
		if transit.Of(d).Durable != nil {
			text += " waits"
		}
		all = append(all, text)
	}
	return all
}

// The gate is called with each wanted state of an object as long as the object is not on disk, and
// not once it is.
func TestGate(t *testing.T) {
	a, d := newAPI(t), newDisk()
	a.put("default/wanted", "web")
	a.put("default/ignored", "web")
	r := newRig(t, a, options{config: informer.Config{Gate: d.gate}, names: []string{"pods", "again"}})
	r.sink.ignore = func(d *event.Delta) bool {
		return d.Source == "again" || d.Op == event.Added && d.Key().Name != "wanted" && d.Key().Name != "short"
	}
	r.start()
	r.synced()
	a.put("default/wanted", "db")
	a.put("default/ignored", "db")
	a.put("default/late", "web")
	a.put("default/short", "web")
	a.delete("default/short")
	a.put("default/gone", "web")
	a.delete("default/gone")
	want := []string{"added wanted waits", "updated wanted waits", "updated ignored waits", "added short waits", "deleted short waits", "deleted gone"}
	eventually(t, "all of it", func() bool { return len(r.sink.peek()) == len(want) })
	if got := r.sink.gates(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := d.uids(); !slices.Equal(got, []string{"uid-1", "uid-1", "uid-2", "uid-4"}) {
		t.Errorf("asked for %v", got)
	}
	deltas := r.sink.peek()
	if transit.Of(deltas[0]).Durable == transit.Of(deltas[1]).Durable || transit.Of(deltas[0]).Durable == transit.Of(deltas[2]).Durable || transit.Of(deltas[3]).Durable != transit.Of(deltas[4]).Durable {
		t.Error("gates mixed up")
	}
	for i, asked := range d.asked[:2] {
		if deltas[i].New != asked {
			t.Errorf("asked for with %s, delivered %v", asked.JSON(), deltas[i])
		}
	}

	// A handed-over object is not saved yet: a newly wanted one needs a gate.
	r.sink.take()
	c := r.watch.Dirty()
	if len(c.Settled) != 1 || c.Settled[0].UID != "uid-4" || len(c.Put) != 3 {
		t.Errorf("changes %+v", c)
	}
	d.write(c)
	a.put("default/wanted", "web")
	a.put("default/late", "db")
	eventually(t, "both", func() bool { return len(r.sink.peek()) == 2 })
	if got := r.sink.gates(); !slices.Equal(got, []string{"updated wanted waits", "updated late waits"}) {
		t.Errorf("got %v", got)
	}
	r.watch.Saved()
	r.sink.take()
	a.put("default/wanted", "db")
	a.put("default/ignored", "web")
	a.put("default/late", "web")
	eventually(t, "all three", func() bool { return len(r.sink.peek()) == 3 })
	if got := r.sink.gates(); !slices.Equal(got, []string{"updated wanted", "updated ignored", "updated late waits"}) {
		t.Errorf("got %v", got)
	}
	r.save(d)
	if got := d.uids(); len(got) > 0 {
		t.Errorf("left over: %v", got)
	}
}

// TestEndlessDeltas: a delta that only goes to routes without ends does not wait, and writes
// nothing. A later one of the object waits if another route gets it.
func TestEndlessDeltas(t *testing.T) {
	a, d := newAPI(t), newDisk()
	a.put("default/a", "web")
	a.put("default/b", "web")
	r := newRig(t, a, options{config: informer.Config{Gate: d.gate}})
	r.sink.admit = func(_ context.Context, d *event.Delta) error {
		transit.Of(d).Endless = d.Op == event.Added
		return nil
	}
	r.start()
	r.synced()
	a.put("default/b", "db")
	want := []string{"added a", "added b", "updated b waits"}
	eventually(t, "all of it", func() bool { return len(r.sink.peek()) == len(want) })
	got := r.sink.gates()
	slices.Sort(got)
	if !slices.Equal(got, want) || !slices.Equal(d.uids(), []string{"uid-2"}) {
		t.Errorf("got %v, and asked for %v", got, d.uids())
	}
}

// Without a gate no delta waits, and there is nothing to save.
func TestNoGate(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	r := syncedRig(t, a, options{})
	if c := r.watch.Dirty(); c.Changed || c.Applied != "101" || len(c.Put) > 0 || transit.Of(r.sink.peek()[0]).Durable != nil {
		t.Errorf("changes %+v", c)
	}
	r.watch.Saved()
}

// An object of a former run that may have been delivered, and was not saved, gets its delete too.
func TestIntents(t *testing.T) {
	intend := func(d *disk, name, uid string) {
		d.asked = append(d.asked, event.Identity(nil, event.Key{Namespace: "default", Name: name}, uid))
	}
	t.Run("listed", func(t *testing.T) {
		modes(t, func(t *testing.T, o options) {
			a, d := saved(t, o)
			a.put("default/there", "web")
			a.delete("default/a")
			intend(d, "a", "uid-9")
			intend(d, "there", "uid-4")
			intend(d, "gone", "uid-8")
			intend(d, "b", "uid-2") // has been saved
			a.compact()
			r := restart(t, a, o, d)
			r.sink.want(t, true, "deleted pods default/a stale", "deleted pods default/a stale", "deleted pods default/gone stale", "added pods default/there")
			// An object is counted after its delta was taken, and the resumed watch was synced
			// before.
			eventually(t, "three objects", func() bool { return r.metric("source_objects", "pods") == 3 })
			if r.save(d); len(d.uids()) > 0 || len(d.objects) != 3 {
				t.Errorf("on disk %v, intents %v", d.objects, d.uids())
			}
		})
	})
	t.Run("resumed", func(t *testing.T) {
		modes(t, func(t *testing.T, o options) {
			a, d := saved(t, o)
			a.put("default/there", "web")
			a.put("default/gone", "web")
			a.delete("default/gone")
			intend(d, "there", "uid-4")
			intend(d, "gone", "uid-5")
			intend(d, "long-gone", "uid-7") // before the cut, which did not settle it
			intend(d, "a", "uid-6")         // likewise, and the name is in use again
			r := restart(t, a, o, d)
			r.sink.want(t, false, "added pods default/there", "added pods default/gone", "deleted pods default/gone")
			a.put("default/there", "web") // nothing of the versions before is missing
			r.sink.want(t, false, "updated pods default/there")
			if r.save(d); len(d.uids()) > 0 || len(d.objects) != 4 {
				t.Errorf("on disk %v, intents %v", d.objects, d.uids())
			}
			a.compact()
			a.dropWatches()
			a.put("default/a", "db")
			r.sink.want(t, false, "updated pods default/a")
		})
	})
	t.Run("of a resource that vanished", func(t *testing.T) {
		a, d := saved(t, options{})
		d.objects = map[event.Key]string{}
		intend(d, "a", "uid-1")
		a.setResources(`{"name":"services","kind":"Service"}`)
		r := restart(t, a, options{}, d)
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "DISCOVERY" {
				fail(w, http.StatusNotFound, "NotFound", "not found")
			}
			return kindOf(r) != "DISCOVERY"
		})
		r.sink.want(t, false, "deleted pods default/a stale")
	})
}

// If only identities were saved of objects that the watch keeps in full, they are listed. That is
// no change.
func TestRestoredBare(t *testing.T) {
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o)
		for key, uid := range map[string]int{"a": 1, "b": 2, "c": 3} {
			d.objects[event.Key{Namespace: "default", Name: key}] = fmt.Sprintf(
				`{"apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":"uid-%d","resourceVersion":"%d"}}`, key, uid, 100+uid)
		}
		a.put("default/b", "db")
		a.delete("default/c")
		r := restart(t, a, o, d)
		r.synced()
		eventually(t, "both", func() bool { return len(r.sink.peek()) == 2 })
		if got, want := r.sink.versions(), []string{"deleted c 103>", "updated b >104"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if o := r.store.Get(event.Key{Namespace: "default", Name: "a"}); o.Raw().Path("spec", "x") != "1" {
			t.Errorf("stored %s", o.JSON())
		}
	})
}

// A resync waits for the identity as well, and the next cut has it.
func TestGateOfSync(t *testing.T) {
	a, d := newAPI(t), newDisk()
	a.put("default/a", "web")
	r := newRig(t, a, options{resync: time.Millisecond, config: informer.Config{Gate: d.gate}})
	r.sink.ignore = func(d *event.Delta) bool { return d.Op == event.Added }
	r.start()
	eventually(t, "a sync", func() bool { return len(r.sink.peek()) > 0 })
	if got := r.sink.gates()[0]; got != "sync a waits" {
		t.Error(got)
	}
	if c := r.save(d); len(c.Put) != 1 || len(d.uids()) > 0 {
		t.Errorf("changes %+v, asked for %v", c, d.uids())
	}
}

// The names by which watches are found again must not change: an update of the router would lose
// its saved state.
func TestSpecID(t *testing.T) {
	// Guarantee: position-by-name
	spec := informer.Spec{}
	spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
	seen := map[string]bool{}
	for _, change := range []func(*informer.Spec){
		func(*informer.Spec) {},
		func(s *informer.Spec) { s.Resource.Group = "apps" },
		func(s *informer.Spec) { s.Namespace = "default" },
		func(s *informer.Spec) { s.LabelSelector = "default" },
		func(s *informer.Spec) { s.FieldSelector = "default" },
		func(s *informer.Spec) { s.Cache = "metadata" },
		func(s *informer.Spec) { s.ManagedFields = true },
		func(s *informer.Spec) { s.Secrets = true },
		func(s *informer.Spec) { s.Drop = "status" },
	} {
		other := spec
		change(&other)
		if seen[other.ID()] {
			t.Errorf("%+v is not told apart", other)
		}
		seen[other.ID()] = true
	}
	full := spec
	full.Cache = "full"
	if id := spec.ID(); id != full.ID() || id != "67fc3690fcd595c2945912c308ddae2b" {
		t.Errorf("id %s, %s", id, full.ID())
	}
}
