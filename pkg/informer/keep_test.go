package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// keeping returns options with `cache: auto`, for a watch that keeps these fields of spec.
func keeping(o options, names ...string) options {
	set := specFields(names...)
	o.spec.Cache, o.kept = config.CacheAuto, &set
	return o
}

func specFields(names ...string) kept.Set {
	set := kept.Identity()
	for _, name := range names {
		set = set.Or(kept.Of([]string{"spec", name}))
	}
	return set
}

// specOf returns the spec of an object, and fails if the object has other fields that nothing
// reads.
func specOf(t *testing.T, o *event.Object) string {
	t.Helper()
	if strings.Contains(string(o.Raw()), "labels") {
		t.Errorf("%s has too many fields", o.Raw())
	}
	return string(o.Raw().Get("spec"))
}

// specs returns the specs of the objects of the store, by name.
func (r *rig) specs() (all []string) {
	for o := range r.store.All() {
		all = append(all, o.Key().Name+specOf(r.t, o))
	}
	slices.Sort(all)
	return all
}

func (r *rig) wantSpecs(want ...string) {
	r.t.Helper()
	if got := r.specs(); !slices.Equal(got, want) {
		r.t.Errorf("the objects are %q, want %q", got, want)
	}
}

const threeFields = `,"spec":{"x":%d,"y":%d,"z":0}`

// keptModes runs a test with streamed initial events and with lists.
func keptModes(t *testing.T, test func(t *testing.T, o options)) {
	t.Helper()
	for name, config := range map[string]informer.Config{"streamed": {}, "paged": {PageSize: 2}} {
		bubble(t, name, func(t *testing.T) { test(t, options{config: config}) })
	}
}

// TestKeptFields: the objects of a watch with `cache: auto` have the kept fields only, and each
// change is a delta, also of another field.
func TestKeptFields(t *testing.T) {
	// Guarantee: cache-auto
	keptModes(t, func(t *testing.T, o options) {
		a := newAPI(t)
		a.put("default/a", "web", fmt.Sprintf(threeFields, 1, 1))
		r := syncedRig(t, a, keeping(o, "x"))
		r.sink.want(t, false, "added pods default/a initial")
		r.wantSpecs(`a{"x":1}`)
		a.put("default/a", "web", fmt.Sprintf(threeFields, 1, 2))
		eventually(t, "the change", func() bool { return len(r.sink.peek()) == 1 })
		d := r.sink.peek()[0]
		if specOf(t, d.Old) != `{"x":1}` || specOf(t, d.New) != `{"x":1}` || d.New.ResourceVersion() != "102" {
			t.Errorf("%s: %s, was %s", describe(d), d.New.Raw(), d.Old.Raw())
		}
		r.sink.want(t, false, "updated pods default/a")
		a.delete("default/a")
		eventually(t, "the deletion", func() bool { return len(r.sink.peek()) == 1 })
		if d := r.sink.peek()[0]; specOf(t, d.Old) != `{"x":1}` {
			t.Errorf("%s: %s", describe(d), d.Old.Raw())
		}
	})
}

// TestKeptMetadata: if only metadata is kept, only metadata is requested.
func TestKeptMetadata(t *testing.T) {
	keptModes(t, func(t *testing.T, o options) {
		a := newAPI(t)
		a.put("default/a", "web", fmt.Sprintf(threeFields, 1, 1))
		accepted := make(chan string, 100)
		a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
			if kind := kindOf(r); kind == "LIST" || kind == "WATCH" || kind == "WATCHLIST" {
				accepted <- r.Header.Get("Accept")
			}
			return false
		})
		r := syncedRig(t, a, keeping(o))
		close(accepted)
		a.onRequest(nil)
		for accept := range accepted {
			if !strings.Contains(accept, "PartialObjectMetadata") {
				t.Errorf("accepted is %s", accept)
			}
		}
		for o := range r.store.All() {
			if got, want := string(o.Raw()), `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"uid-1","resourceVersion":"101"}}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	})
}

// TestWiden: all objects get more fields while the watch runs, and no delta says so. Deltas that
// come meanwhile are delivered once. A reload that reads less reduces the objects again.
func TestWiden(t *testing.T) {
	// Guarantee: cache-auto-reload
	keptModes(t, func(t *testing.T, o options) {
		for _, metadata := range []bool{false, true} {
			a, d := newAPI(t), newDisk()
			for i := range 5 {
				a.put(fmt.Sprintf("default/p%d", i), "web", fmt.Sprintf(threeFields, i, i))
			}
			with := keeping(o, "x")
			if metadata {
				with = keeping(o)
			}
			with.config.Gate = d.gate
			r := syncedRig(t, a, with)
			eventually(t, "the objects", func() bool { return len(r.sink.peek()) == 5 })
			r.sink.take()
			r.save(d)

			stop, stopped := make(chan struct{}), make(chan int)
			go func() { // changes of one object, from 10 on
				n := 0
				for ; ; n++ {
					select {
					case <-stop:
						stopped <- n
						return
					case <-time.After(time.Millisecond):
						a.put("default/p0", "web", fmt.Sprintf(threeFields, 10+n, 10+n))
					}
				}
			}()
			wider := specFields("x", "y")
			wanted := []informer.Wanted{{Spec: r.watch.Spec(), Sources: []informer.Source{{Name: "pods"}}, Kept: wider.Keys()}}
			must.Succeed(t, r.factory.Widen(t.Context(), wanted))
			for o := range r.store.All() {
				if o.Raw().Get("spec").Get("y") == "" {
					t.Errorf("after Widen: %s", o.Raw())
				}
			}
			seen := len(r.sink.peek())
			must.Succeed(t, r.factory.Reconfigure(t.Context(), wanted, func(*informer.Held) {}))
			close(stop)
			n := <-stopped
			eventually(t, "all changes", func() bool { return len(r.sink.peek()) >= n })
			for i, d := range r.sink.peek() {
				if i >= seen && (d.Old.Raw().Get("spec").Get("y") == "" || d.New.Raw().Get("spec").Get("y") == "") {
					t.Errorf("%s after Widen: %s, was %s", describe(d), d.New.Raw(), d.Old.Raw())
				}
			}
			if got := len(r.sink.take()); got != n {
				t.Errorf("%d deltas of %d changes", got, n)
			}
			if c := r.save(d); c.Kept != wider.Text() || len(d.objects) != 5 {
				t.Errorf("saved are %d objects with %s", len(d.objects), c.Kept)
			}
			for key, text := range d.objects {
				if !strings.Contains(text, `"y":`) {
					t.Errorf("saved of %s is %s", key, text)
				}
			}

			few := specFields("y")
			wanted[0].Kept = few.Keys()
			must.Succeed(t, r.factory.Widen(t.Context(), wanted))
			must.Succeed(t, r.factory.Reconfigure(t.Context(), wanted, func(*informer.Held) {}))
			if got, want := r.specs()[1:], []string{`p1{"y":1}`, `p2{"y":2}`, `p3{"y":3}`, `p4{"y":4}`}; !slices.Equal(got, want) {
				t.Errorf("reduced are %q", got)
			}
			if got := r.sink.take(); len(got) != 0 {
				t.Errorf("got %q", got)
			}
			r.stop()
		}
	})
}

// TestWidenUnavailable: without the API server a reload that needs more fields is refused, and
// later possible.
func TestWidenUnavailable(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web", fmt.Sprintf(threeFields, 1, 1))
	r := syncedRig(t, a, keeping(options{}, "x"))
	a.onRequest(func(w http.ResponseWriter, _ *http.Request) bool {
		fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "not now")
		return true
	})
	wider := specFields("x", "y")
	wanted := []informer.Wanted{{Spec: r.watch.Spec(), Sources: []informer.Source{{Name: "pods"}}, Kept: wider.Keys()}}
	err := r.factory.Widen(t.Context(), wanted)
	if err == nil || !strings.HasPrefix(err.Error(), "v1/pods cannot be listed now: ") {
		t.Fatalf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.factory.Widen(ended, wanted); err == nil {
		t.Error("it has the fields")
	}
	a.onRequest(nil)
	eventually(t, "the fields", func() bool { return r.factory.Widen(t.Context(), wanted) == nil })
	r.wantSpecs(`a{"x":1,"y":1}`)
	r.sink.want(t, false, "added pods default/a initial")
}

// TestRestartWidened: a restart with a configuration that reads more fields completes the saved
// objects as of the saved resourceVersion, and then resumes: each change is delivered with the
// state before, in all fields.
func TestRestartWidened(t *testing.T) {
	// Guarantee: cache-auto-reload
	keptModes(t, func(t *testing.T, o options) {
		a, d := savedKept(t, keeping(o, "x"))
		a.put("default/a", "web", fmt.Sprintf(threeFields, 2, 2))
		a.put("default/a", "web", fmt.Sprintf(threeFields, 3, 3))
		a.delete("default/b")
		r := restart(t, a, keeping(o, "x", "y"), d)
		eventually(t, "the changes", func() bool { return len(r.sink.peek()) == 3 })
		var got []string
		for _, d := range r.sink.peek() {
			text := describe(d) + " " + specOf(t, d.Old)
			if d.New != nil {
				text += specOf(t, d.New)
			}
			got = append(got, text)
		}
		if want := []string{
			`updated pods default/a {"x":1,"y":1}{"x":2,"y":2}`, `updated pods default/a {"x":2,"y":2}{"x":3,"y":3}`, `deleted pods default/b {"x":1,"y":1}`,
		}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		r.synced()
		r.wantSpecs(`a{"x":3,"y":3}`, `c{"x":1,"y":1}`)
		if n := a.seen("WATCHLIST"); n != 0 {
			t.Errorf("%d lists", n)
		}
		r.shutdown(d)
		if want := specFields("x", "y").Text(); d.kept != want {
			t.Errorf("saved is %s", d.kept)
		}
	})
}

// TestRestartWidenedExpired: if the API server has dropped the saved state, the objects that have
// not changed since are completed, and the others when their changes arrive.
func TestRestartWidenedExpired(t *testing.T) {
	keptModes(t, func(t *testing.T, o options) {
		a, d := savedKept(t, keeping(o, "x"))
		a.put("default/a", "web", fmt.Sprintf(threeFields, 2, 2))
		a.compact()
		r := restart(t, a, keeping(o, "x", "y"), d)
		eventually(t, "the change", func() bool { return len(r.sink.peek()) == 1 })
		if d := r.sink.peek()[0]; specOf(t, d.Old) != `{"x":1}` || specOf(t, d.New) != `{"x":2,"y":2}` {
			t.Errorf("%s: %s, was %s", describe(d), d.New.Raw(), d.Old.Raw())
		}
		r.synced()
		r.wantSpecs(`a{"x":2,"y":2}`, `b{"x":1,"y":1}`, `c{"x":1,"y":1}`)
	})
}

// TestRestartNarrowed: a restart with a configuration that reads fewer fields resumes without a
// list, with less in memory.
func TestRestartNarrowed(t *testing.T) {
	keptModes(t, func(t *testing.T, o options) {
		a, d := savedKept(t, keeping(o, "x", "y"))
		r := restart(t, a, keeping(o, "y"), d)
		r.synced()
		r.wantSpecs(`a{"y":1}`, `b{"y":1}`, `c{"y":1}`)
		if n := a.lists(); n != 0 {
			t.Errorf("%d lists", n)
		}
		if got := r.sink.take(); len(got) != 0 {
			t.Errorf("got %q", got)
		}
	})
}

// savedKept lets a router see the pods a, b and c, and stops it.
func savedKept(t *testing.T, o options) (*api, *disk) {
	t.Helper()
	a, d := newAPI(t), newDisk()
	for _, name := range []string{"a", "b", "c"} {
		a.put("default/"+name, "web", fmt.Sprintf(threeFields, 1, 1))
	}
	r := restart(t, a, o, d)
	r.sink.want(t, true, "added pods default/a initial", "added pods default/b initial", "added pods default/c initial")
	r.synced()
	r.shutdown(d)
	return a, d
}
