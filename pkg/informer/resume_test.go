package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// disk is a checkpoint. It keeps texts, as a file does.
type disk struct {
	cluster   string
	fed       string
	relisting bool
	kept      string
	objects   map[event.Key]string

	mu    sync.Mutex
	asked []*event.Object // states with a gate
	gates map[string]chan struct{}
}

func newDisk() *disk {
	return &disk{objects: make(map[event.Key]string), gates: make(map[string]chan struct{})}
}

func (d *disk) gate(_ string, o *event.Object) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, o)
	d.gates[o.UID()] = make(chan struct{})
	return d.gates[o.UID()]
}

func (d *disk) write(c informer.Changes) {
	d.cluster, d.fed, d.relisting, d.kept = c.Cluster, c.Applied, c.Relisting, c.Kept
	for _, key := range c.Deleted {
		delete(d.objects, key)
	}
	for _, gone := range c.Settled {
		delete(d.objects, gone.Key)
		d.settle(gone.UID)
	}
	for _, o := range c.Put {
		d.objects[o.Key()] = string(o.JSON())
		d.settle(o.UID())
	}
}

func (d *disk) settle(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = slices.DeleteFunc(d.asked, func(o *event.Object) bool { return o.UID() == uid })
}

func (d *disk) uids() (uids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.asked {
		uids = append(uids, o.UID())
	}
	return uids
}

// save writes a cut of the watch.
func (r *rig) save(d *disk) informer.Changes {
	c := r.watch.Dirty()
	d.write(c)
	r.watch.Saved()
	return c
}

// shutdown stops and writes the last cut.
func (r *rig) shutdown(d *disk) {
	r.stop()
	r.save(d)
}

// restart starts another router from the disk.
func restart(t *testing.T, a *api, o options, d *disk) *rig {
	t.Helper()
	o.config.Gate = d.gate
	r := newRig(t, a, o)
	restored := restoredFrom(t, r, d)
	if o.later != nil {
		o.later.take(&restored)
	}
	restored.Lossy = o.lossy
	r.watch.Restore(restored)
	must.Succeed(t, r.watch.Complete(t.Context(), slog.New(slog.NewTextHandler(r.log, nil))))
	a.mu.Lock()
	a.requests = nil
	a.mu.Unlock()
	r.start()
	return r
}

// restoredFrom returns the state on the disk.
func restoredFrom(t *testing.T, r *rig, d *disk) informer.Restored {
	t.Helper()
	restored := informer.Restored{Cluster: d.cluster, Applied: d.fed, Relisting: d.relisting, Listed: d.fed != "", Kept: d.kept}
	reduce := r.watch.Reducer(d.kept)
	add := func(text string) {
		o, err := event.ParseObject(r.watch.Resource(), text)
		must.Succeed(t, err)
		restored.Objects = append(restored.Objects, reduce(o))
	}
	for _, text := range d.objects {
		add(text)
	}
	restored.Intents = slices.Clone(d.asked)
	return restored
}

// lists returns the number of lists, of either kind.
func (a *api) lists() int { return a.seen("LIST") + a.seen("WATCHLIST") }

// versions returns "op name old>new" of the deltas so far.
func (s *sink) versions() (all []string) {
	for _, d := range s.peek() {
		old, now := "", ""
		if d.Old != nil {
			old = d.Old.ResourceVersion()
		}
		if d.New != nil {
			now = d.New.ResourceVersion()
		}
		all = append(all, fmt.Sprintf("%s %s %s>%s", d.Op, d.Key().Name, old, now))
	}
	return all
}

// saved lets a router see the pods a, b and c of versions 101 to 103, and stops it.
func saved(t *testing.T, o options) (*api, *disk) {
	t.Helper()
	a, d := newAPI(t), newDisk()
	for _, name := range []string{"a", "b", "c"} {
		a.put("default/"+name, "web", `,"spec":{"x":1}`)
	}
	r := restart(t, a, o, d)
	r.sink.want(t, true, "added pods default/a initial", "added pods default/b initial", "added pods default/c initial")
	r.synced()
	r.shutdown(d)
	return a, d
}

// modes runs a test with streamed initial events and with lists.
func modes(t *testing.T, test func(t *testing.T, o options)) {
	t.Helper()
	for name, config := range map[string]informer.Config{"streamed": {}, "paged": {PageSize: 2}} {
		bubble(t, name, func(t *testing.T) { test(t, options{config: config}) })
		bubble(t, name+", restored later", func(t *testing.T) { test(t, options{config: config, later: &later{}}) })
	}
}

// A restart without changes lists nothing and emits nothing, and then resumes.
func TestRestartUnchanged(t *testing.T) {
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o)
		r := restart(t, a, o, d)
		r.synced()
		if got := r.metric("source_objects", "pods"); got != 3 {
			t.Errorf("source_objects = %v, want 3", got)
		}
		if c := r.save(d); c.Changed || c.Applied != "103" || c.ID != r.watch.Spec().ID() {
			t.Errorf("changes %+v", c)
		}
		a.put("default/a", "db")
		a.dropWatches()
		a.put("default/d", "db")
		r.sink.want(t, false, "updated pods default/a", "added pods default/d")
		r.shutdown(d)
		r = restart(t, a, o, d)
		r.synced()
		r.shutdown(d)
		if n, got := a.lists(), r.sink.take(); n > 0 || len(got) > 0 {
			t.Errorf("%d lists, deltas %v\n%s", n, got, r.log)
		}
	})
}

// Changes while the router is down become deltas as they happened, from the saved states.
func TestRestartChanged(t *testing.T) {
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o)
		a.put("default/a", "db")    // 104
		a.delete("default/b")       // 105
		a.put("default/b", "web")   // 106
		a.delete("default/c")       // 107
		a.put("default/new", "web") // 108
		a.delete("default/new")     // 109
		r := restart(t, a, o, d)
		r.synced()
		eventually(t, "all of it", func() bool { return len(r.sink.peek()) == 6 })
		want := []string{"updated a 101>104", "deleted b 105>", "added b >106", "deleted c 107>", "added new >108", "deleted new 109>"}
		if got := r.sink.versions(); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		for _, d := range r.sink.peek() {
			if d.Stale || d.Initial || d.Object().Resource().Kind != "Pod" {
				t.Errorf("%s of a %s", describe(d), d.Object().Resource().Kind)
			}
		}
		if n := a.lists(); n > 0 {
			t.Errorf("%d lists\n%s", n, r.log)
		}
		if old := r.sink.peek()[0].Old; !strings.Contains(string(old.JSON()), `"spec":{"x":1}`) {
			t.Errorf("old state %s", old.JSON())
		}
	})
}

// The API server has dropped the history: the net change becomes deltas.
func TestRestartExpired(t *testing.T) {
	test := func(t *testing.T, o options, midstream bool) {
		t.Helper()
		a, d := saved(t, o)
		a.put("default/a", "db")  // 104
		a.delete("default/b")     // 105
		a.put("default/b", "web") // 106
		a.delete("default/c")     // 107
		a.put("default/n", "web") // 108
		var once atomic.Bool
		if a.compact(); midstream {
			a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if kindOf(r) != "WATCH" || once.Swap(true) {
					return false
				}
				fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`+"\n")
				return true
			})
		}
		r := restart(t, a, o, d)
		eventually(t, "all of it", func() bool { return len(r.sink.peek()) == 5 })
		got := r.sink.versions()
		slices.Sort(got)
		if want := []string{"added b >106", "added n >108", "deleted b 102>", "deleted c 103>", "updated a 101>104"}; !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		for _, d := range r.sink.peek() {
			if d.Stale != (d.Op == event.Deleted) || d.Initial {
				t.Error(describe(d))
			}
		}
		eventually(t, "counted", func() bool { return r.metric("source_relists_total", "expired") == 1 })
		r.synced()
		if c := r.save(d); c.Relisting || c.Applied != "109" || len(c.Put) != 3 || len(c.Deleted) != 1 {
			t.Errorf("changes %+v", c)
		}
	}
	modes(t, func(t *testing.T, o options) { test(t, o, false) })
	bubble(t, "in the stream", func(t *testing.T) { test(t, options{}, true) })
}

// A list that was applied in part is listed again. Its new objects are not initial, unless it was
// the first list.
func TestRestartInList(t *testing.T) {
	for name, first := range map[string]bool{"the first": true, "another": false} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, o options) {
				a, d := saved(t, o)
				d.relisting = true
				initial := ""
				if first {
					d.fed, initial = "", " initial"
				}
				delete(d.objects, event.Key{Namespace: "default", Name: "b"})
				a.put("default/a", "db")
				a.delete("default/c")
				r := restart(t, a, o, d)
				r.sink.want(t, true, "deleted pods default/c stale", "updated pods default/a", "added pods default/b"+initial)
				r.synced()
				if c := r.save(d); c.Relisting {
					t.Errorf("changes %+v", c)
				}
			})
		})
	}
}

// A cut in the middle of a list records that.
func TestDirtyInList(t *testing.T) {
	a, d := newAPI(t), newDisk()
	a.put("default/a", "web")
	a.put("default/b", "web")
	r := newRig(t, a, options{config: informer.Config{Gate: d.gate}})
	var cuts []informer.Changes
	r.sink.admit = func(context.Context, *event.Delta) error { cuts = append(cuts, r.watch.Dirty()); return nil }
	r.start()
	r.synced()
	if cuts[1].Applied != "" || !cuts[1].Relisting || len(cuts[1].Put) != 1 {
		t.Errorf("%+v", cuts[1])
	}
	all := r.factory.BeginCut().End()
	if c := all[0]; len(all) != 1 || c.Applied != "102" || c.Relisting || len(c.Put) != 1 {
		t.Errorf("%+v", c)
	}
	r.factory.Saved()
}

// rewind restores a copy of the pods and of the version, as a restored backup does.
func (a *api) rewind(version int, pods map[string]pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version, a.pods, a.history = version, maps.Clone(pods), nil
}

// A server that went back in time would send no events until it reaches the old resourceVersion:
// its objects replace those of the cache.
func TestWentBack(t *testing.T) {
	older := map[string]pod{
		"default/a": {namespace: "default", name: "a", uid: "uid-1", version: 60},
		"default/b": {namespace: "default", name: "b", uid: "uid-0", version: 61},
	}
	want := []string{"updated pods default/a", "deleted pods default/b stale", "added pods default/b", "deleted pods default/c stale"}
	t.Run("while down", func(t *testing.T) {
		modes(t, func(t *testing.T, o options) {
			a, d := saved(t, o)
			a.rewind(70, older)
			r := restart(t, a, o, d)
			r.sink.want(t, true, want...)
			eventually(t, "counted", func() bool { return r.metric("source_relists_total", "rewound") == 1 })
			if r.synced(); r.watch.Applied() != "70" {
				t.Errorf("fed %s", r.watch.Applied())
			}
		})
	})
	t.Run("while running", func(t *testing.T) {
		modes(t, func(t *testing.T, o options) {
			a, d := saved(t, o)
			r := restart(t, a, o, d)
			r.synced()
			a.awaitWatch()
			a.rewind(70, older)
			a.dropWatches()
			r.sink.want(t, true, want...)
			eventually(t, "counted", func() bool { return r.metric("source_relists_total", "rewound") == 1 })
			a.put("default/b", "db")
			r.sink.want(t, false, "updated pods default/b")
		})
	})
}

// A client without access waits, and resumes when it has access again.
func TestRestartForbidden(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized, http.StatusServiceUnavailable} {
		modes(t, func(t *testing.T, o options) {
			a, d := saved(t, o)
			a.delete("default/a")
			var allowed atomic.Bool
			a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if allowed.Load() || kindOf(r) == "DISCOVERY" {
					return false
				}
				fail(w, code, strings.ReplaceAll(http.StatusText(code), " ", ""), "you shall not pass")
				return true
			})
			r := restart(t, a, o, d)
			eventually(t, "the reason is known", func() bool {
				s, _ := r.factory.Status("pods")
				return !s.Synced && strings.Contains(s.Reason, "you shall not pass") && s.Refused == (code == http.StatusForbidden)
			})
			allowed.Store(true)
			r.sink.want(t, false, "deleted pods default/a")
			if r.synced(); a.lists() > 0 {
				t.Error("listed")
			}
		})
	}
}

// The probe does not stop a client that may watch and not list.
func TestProbeForbidden(t *testing.T) {
	a, d := saved(t, options{})
	a.put("default/a", "db")
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) == "PROBE" {
			fail(w, http.StatusForbidden, "Forbidden", "no lists")
		}
		return kindOf(r) == "PROBE"
	})
	r := restart(t, a, options{}, d)
	r.sink.want(t, false, "updated pods default/a")
	r.synced()
}

// The resource vanished while the router was down: its objects are deleted once discovery confirms
// it. If discovery missed it only for a moment, no delta is emitted.
func TestRestartWithoutResource(t *testing.T) {
	gone := `{"name":"services","kind":"Service"}`
	notFound := func(a *api) {
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			if kindOf(r) == "DISCOVERY" || a.resources == "" {
				return false
			}
			fail(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
			return true
		})
	}
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o)
		a.setResources(gone)
		notFound(a)
		r := restart(t, a, o, d)
		r.sink.want(t, true, "deleted pods default/a stale", "deleted pods default/b stale", "deleted pods default/c stale")
		r.shutdown(d)
		if len(d.objects) > 0 || d.fed != "103" || !d.relisting {
			t.Errorf("on disk %+v", d)
		}
		// The resource returns while the router is down: its objects are new, not initial.
		a.setResources("")
		r = restart(t, a, o, d)
		r.sink.want(t, true, "added pods default/a", "added pods default/b", "added pods default/c")
	})
	bubble(t, "never there", func(t *testing.T) {
		a, d := newAPI(t), newDisk()
		a.setResources(gone)
		r := restart(t, a, options{}, d)
		eventually(t, "looked", func() bool { return r.watch.Applied() == "0" })
		r.shutdown(d)
		a.setResources("")
		a.put("default/a", "web")
		r = restart(t, a, options{}, d)
		r.sink.want(t, false, "added pods default/a")
		r.synced()
	})
	bubble(t, "for a moment", func(t *testing.T) {
		a, d := saved(t, options{})
		var asked atomic.Int32
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "DISCOVERY" || asked.Add(1) > 2 {
				return false
			}
			fmt.Fprint(w, `{"kind":"APIResourceList","resources":[]}`)
			return true
		})
		r := restart(t, a, options{}, d)
		r.synced()
		if got := r.sink.take(); len(got) > 0 || a.lists() > 0 {
			t.Errorf("%v, %d lists", got, a.lists())
		}
	})
}

// A cache of identities saves identities.
func TestRestartIdentity(t *testing.T) {
	a, d := newAPI(t), newDisk()
	a.put("default/a", "web", `,"spec":{"x":1}`)
	o := options{spec: informer.Spec{Cache: config.CacheIdentity}}
	r := restart(t, a, o, d)
	r.synced()
	r.shutdown(d)
	if text := d.objects[event.Key{Namespace: "default", Name: "a"}]; strings.Contains(text, "spec") {
		t.Errorf("saved %s", text)
	}
	a.put("default/a", "web", `,"spec":{"x":2}`)
	r = restart(t, a, o, d)
	r.sink.want(t, false, "updated pods default/a")
	if r.synced(); a.lists() > 0 {
		t.Error("listed")
	}
}

// TestLossy: if the last cuts of the former run may be missing, an object that is new to a resumed
// watch may have been delivered, so its delete is not coalesced with it.
func TestLossy(t *testing.T) {
	// Guarantee: fleet-takeover
	for _, lossy := range []bool{false, true} {
		o := options{}
		a, d := saved(t, o)
		a.put("default/before", "web")
		o.lossy = lossy
		r := restart(t, a, o, d)
		eventually(t, "the former change is reported", func() bool { return len(r.sink.peek()) > 0 })
		a.put("default/after", "web")
		eventually(t, "it is reported", func() bool { return len(r.sink.peek()) > 1 })
		for i, want := range []bool{lossy, false} {
			if got := r.sink.peek()[i]; transit.Of(got).Selective != want {
				t.Errorf("lossy %v, %s: %+v", lossy, describe(got), *transit.Of(got))
			}
		}
		r.shutdown(d)
	}
}
