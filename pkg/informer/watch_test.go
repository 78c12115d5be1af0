package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

func TestLifeOfObjects(t *testing.T) {
	for name, config := range map[string]informer.Config{"streamed": {}, "paged": {PageSize: 2}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			for _, key := range []string{"default/a", "default/b", "other/a", "other/b", "other/c"} {
				a.put(key, "web")
			}
			r := syncedRig(t, a, options{config: config})
			r.sink.want(t, true,
				"added pods default/a initial", "added pods default/b initial", "added pods other/a initial",
				"added pods other/b initial", "added pods other/c initial")
			a.put("default/a", "db")
			a.put("default/d", "web")
			a.delete("default/b")
			a.delete("other/a")
			a.put("other/a", "web")
			r.sink.want(t, false,
				"updated pods default/a", "added pods default/d", "deleted pods default/b", "deleted pods other/a", "added pods other/a")
			lists := a.seen("LIST") + a.seen("WATCHLIST")
			a.dropWatches()
			a.put("default/a", "web")
			r.sink.want(t, false, "updated pods default/a")
			if n := a.seen("LIST") + a.seen("WATCHLIST"); n != lists {
				t.Error("a watch that was only interrupted was listed again")
			}
			if got := r.metric("source_objects", "pods"); got != 5 {
				t.Errorf("source_objects = %v, want 5", got)
			}
			// A delta is counted after it was taken.
			eventually(t, "two updates are counted", func() bool { return r.metric("source_deltas_total", "updated") == 2 })
			text := string(r.store.Get(event.Key{Namespace: "default", Name: "a"}).JSON())
			if strings.Contains(text, "managedFields") || !strings.Contains(text, `"kind":"Pod"`) || !strings.Contains(text, `"apiVersion":"v1"`) {
				t.Errorf("cached text %s", text)
			}
			if got := r.watch.Applied(); got != "111" {
				t.Errorf("fed = %s, want 111", got)
			}
		})
	}
}

// All kinds of changes happen while the watch is down, and the history is dropped: only the
// differences become deltas.
func TestGap(t *testing.T) {
	for name, config := range map[string]informer.Config{"streamed": {}, "paged": {PageSize: 2}} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			for _, name := range []string{"same", "changed", "recreated", "gone"} {
				a.put("default/"+name, "web")
			}
			r := syncedRig(t, a, options{config: config})
			r.sink.take()
			defer func() {
				if t.Failed() {
					t.Log(r.log)
				}
			}()
			down := make(chan struct{})
			a.onRequest(func(w http.ResponseWriter, _ *http.Request) bool {
				select {
				case <-down:
					return false
				default:
					fail(w, 503, "ServiceUnavailable", "down")
					return true
				}
			})
			a.dropWatches()
			a.put("default/changed", "db")
			a.delete("default/recreated")
			a.put("default/recreated", "web")
			a.delete("default/gone")
			a.put("default/new", "web")
			a.compact()
			close(down)
			r.sink.want(t, true, "updated pods default/changed", "deleted pods default/recreated stale", "added pods default/recreated",
				"deleted pods default/gone stale", "added pods default/new")
			eventually(t, "relist counted", func() bool { return r.metric("source_relists_total", "expired") == 1 })
			a.put("default/same", "db")
			r.sink.want(t, false, "updated pods default/same")
		})
	}
}

func TestSelector(t *testing.T) {
	a := newAPI(t)
	for i := range 40 {
		a.put(fmt.Sprintf("default/p%02d", i), "web")
	}
	r := syncedRig(t, a, options{spec: informer.Spec{LabelSelector: "app=web"}})
	r.sink.take()
	a.put("default/p00", "db")
	a.delete("default/p01")
	a.put("default/p00", "web")
	a.put("other/x", "db")
	a.put("default/p02", "web")
	r.sink.want(t, true, "added pods default/p00", "deleted pods default/p01", "deselected pods default/p00", "updated pods default/p02")

	// by single requests, and by one list
	for name, n := range map[string]int{"a few": 3, "many": 20} {
		t.Run(name, func(t *testing.T) {
			var want []string
			down := make(chan struct{})
			a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
				if kindOf(r) == "WATCH" {
					<-down
				}
				return false
			})
			a.dropWatches()
			for i := 10; i < 10+n; i++ {
				key := fmt.Sprintf("default/p%02d", i)
				if i%2 == 0 {
					a.put(key, "db")
					want = append(want, "deselected pods "+key+" stale")
				} else {
					a.delete(key)
					want = append(want, "deleted pods "+key+" stale")
				}
			}
			a.compact()
			close(down)
			r.sink.want(t, true, want...)
			for i := 10; i < 10+n; i++ {
				key := fmt.Sprintf("default/p%02d", i)
				a.put(key, "web")
			}
			eventually(t, "back", func() bool { return len(r.sink.peek()) == n })
			r.sink.take()
		})
	}
}

func TestCacheIdentity(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web", `,"spec":{"x":1}`)
	r := syncedRig(t, a, options{spec: informer.Spec{Cache: config.CacheIdentity}})
	a.put("default/a", "web", `,"spec":{"x":2}`)
	eventually(t, "two deltas", func() bool { return len(r.sink.peek()) == 2 })
	d := r.sink.peek()[1]
	if d.Op != event.Updated || d.Old != nil || d.New.Raw().Path("spec", "x") != "2" {
		t.Errorf("delta %v: old %v, new %s", d, d.Old, d.New.JSON())
	}
	got := string(r.store.Get(d.Key()).JSON())
	if want := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default","uid":"uid-1","resourceVersion":"102"}}`; got != want {
		t.Errorf("stored %s\nwant   %s", got, want)
	}
}

// A watch that keeps only identities keeps no more of its first list, unless someone takes the
// initial deltas. Later deltas have whole objects.
func TestCacheIdentityInitial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int64{0, 1} {
			for _, taken := range []bool{true, false} {
				a := newAPI(t)
				a.put("default/a", "web", `,"spec":{"x":1}`)
				r := syncedRig(t, a, options{spec: informer.Spec{Cache: config.CacheIdentity}, config: informer.Config{
					PageSize: size, TakesInitial: func(source string) bool { return taken || source != "pods" },
				}})
				a.put("default/b", "web", `,"spec":{"x":1}`)
				a.put("default/a", "web", `,"spec":{"x":2}`)
				eventually(t, "three deltas", func() bool { return len(r.sink.peek()) == 3 })
				a.compact() // the next list is not the first
				a.dropWatches()
				a.put("default/c", "web", `,"spec":{"x":1}`)
				eventually(t, "the next list", func() bool { return len(r.sink.peek()) == 4 })
				for i, d := range r.sink.peek() {
					if whole := d.New.Raw().Path("spec", "x") != ""; whole != (taken || i > 0) {
						t.Errorf("page size %d, taken: %v, delta %v: %s", size, taken, d, d.New.JSON())
					}
				}
				r.stop()
			}
		}
	})
}

func TestCacheMetadata(t *testing.T) {
	a := newAPI(t)
	var accepted []string
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != "LIST" && kindOf(r) != "WATCH" {
			return false
		}
		accepted = append(accepted, r.Header.Get("Accept"))
		p := pod{namespace: "default", name: "a", uid: "u", version: 5}
		if kindOf(r) == "LIST" {
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[%s]}`,
				p.text(`"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`))
			return true
		}
		return false
	})
	r := newRig(t, a, options{spec: informer.Spec{Cache: config.CacheMetadata}, config: informer.Config{PageSize: 100}})
	r.start()
	r.sink.want(t, false, "added pods default/a initial")
	text := string(r.store.Get(event.Key{Namespace: "default", Name: "a"}).JSON())
	if want := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"5","labels":{"app":""}}}`; text != want {
		t.Errorf("stored %s\nwant   %s", text, want)
	}
	a.awaitWatch()
	a.put("default/b", "web", `,"spec":{"x":1}`) // a server that sends more than was requested
	r.sink.want(t, false, "added pods default/b")
	if text := string(r.store.Get(event.Key{Namespace: "default", Name: "b"}).JSON()); strings.Contains(text, "spec") {
		t.Errorf("stored %s", text)
	}
	r.stop()
	if !strings.Contains(accepted[0], "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1") {
		t.Error("accepted", accepted)
	}
}

// Sources with equal Specs share a watch, and each gets every delta.
func TestSharedWatch(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	r := syncedRig(t, a, options{names: []string{"pods", "again"}})
	r.sink.want(t, false, "added pods default/a initial", "added again default/a initial")
	if a.seen("WATCHLIST") != 1 {
		t.Error("not shared")
	}
}

func TestResync(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	a.put("default/b", "web")
	r := newRig(t, a, options{resync: 20 * time.Millisecond})
	r.start()
	r.sink.want(t, true, "added pods default/a initial", "added pods default/b initial", "sync pods default/a", "sync pods default/b")
}

// While a delta waits for room, no other overtakes it, and the end of the context ends the wait.
func TestBlockedDownstream(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	r := newRig(t, a, options{resync: time.Millisecond})
	room := make(chan struct{})
	var waiting atomic.Bool
	r.sink.admit = func(ctx context.Context, d *event.Delta) error {
		if d.Op != event.Updated {
			return nil
		}
		waiting.Store(true)
		select {
		case <-room:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.start()
	r.synced()
	eventually(t, "a sync", func() bool { return len(r.sink.peek()) > 1 })
	a.put("default/a", "db")
	eventually(t, "it waits", waiting.Load)
	version := func() string { return r.store.Get(event.Key{Namespace: "default", Name: "a"}).ResourceVersion() }
	if version() != "101" {
		t.Error("the store is ahead of the routes")
	}
	close(room)
	eventually(t, "the update", func() bool { return version() == "102" })
	seen := false
	for _, d := range r.sink.peek() {
		if d.Op == event.Updated {
			seen = true
		}
		if d.Op == event.Sync && seen != (d.New.ResourceVersion() == "102") {
			t.Errorf("%v at %s, update seen: %v", d, d.New.ResourceVersion(), seen)
		}
	}
	r.stop()
}

// A blocked delta does not delay the stop.
func TestStopWhileBlocked(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	r := newRig(t, a, options{})
	waiting := make(chan struct{})
	r.sink.admit = func(ctx context.Context, _ *event.Delta) error {
		close(waiting)
		<-ctx.Done()
		return ctx.Err()
	}
	r.start()
	<-waiting
	r.stop()
	if r.watch.Applied() != "" || r.store.Get(event.Key{Namespace: "default", Name: "a"}) != nil {
		t.Error("something was applied that was not admitted")
	}
}
