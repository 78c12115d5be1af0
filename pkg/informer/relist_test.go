package informer_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestRelist: the resourceVersions of a restored API server have passed those of the cache, so that
// a probe cannot notice the restore. A requested list finds all differences, and takes older states
// too.
func TestRelist(t *testing.T) {
	// Guarantee: relist
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o) // a to c, of versions 101 to 103
		r := restart(t, a, o, d)
		r.synced()
		a.rewind(200, map[string]pod{
			"default/a": {namespace: "default", name: "a", uid: "uid-1", version: 60},
			"default/b": {namespace: "default", name: "b", uid: "uid-0", version: 150},
			"default/n": {namespace: "default", name: "n", uid: "uid-9", version: 160},
		})
		a.dropWatches()
		a.put("default/mark", "web")
		r.sink.want(t, false, "added pods default/mark") // the watch resumes without deltas
		lists := a.lists()
		found, err := r.factory.Relist(t.Context(), "pods")
		if err != nil || found != (informer.Relisted{Objects: 4, Deltas: 5}) {
			t.Errorf("found %+v, %v", found, err)
		}
		r.sink.want(t, true, "updated pods default/a", "deleted pods default/b stale", "added pods default/b", "added pods default/n",
			"deleted pods default/c stale")
		if a.lists() == lists || r.metric("source_relists_total", "asked") != 1 {
			t.Error("there was no list, or it is not counted")
		}
		if found, err := r.factory.Relist(t.Context(), "pods"); err != nil || found.Deltas != 0 {
			t.Errorf("the second time %+v, %v", found, err)
		}
		a.put("default/a", "db")
		r.sink.want(t, false, "updated pods default/a")
		r.shutdown(d)
		r = restart(t, a, o, d)
		r.synced()
		if got := r.sink.take(); len(got) > 0 {
			t.Errorf("after a restart %q", got)
		}
	})
}

// TestRelistBeforeResuming: a watch that has not yet resumed from its saved state gives the attempt
// up.
func TestRelistBeforeResuming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := saved(t, options{})
		var down atomic.Bool
		down.Store(true)
		a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
			fails := down.Load() && kindOf(r) != "DISCOVERY"
			if fails {
				http.Error(w, "starting", http.StatusServiceUnavailable)
			}
			return fails
		})
		r := restart(t, a, options{}, d)
		eventually(t, "it fails", func() bool { s, _ := r.factory.Status("pods"); return strings.Contains(s.Reason, "503") })
		if _, err := r.factory.Relist(t.Context(), "pods"); err == nil || !strings.Contains(err.Error(), "cannot be listed now") {
			t.Errorf("error is %v", err)
		}
		a.rewind(200, nil)
		down.Store(false)
		r.sink.want(t, true, "deleted pods default/a stale", "deleted pods default/b stale", "deleted pods default/c stale")
		r.synced()
	})
}

// TestResyncAsked: all cached objects are emitted once more, for the named source, in a round for
// each call.
func TestResyncAsked(t *testing.T) {
	// Guarantee: resync
	a := newAPI(t)
	a.put("default/a", "web")
	a.put("other/b", "web")
	r := newRig(t, a, options{names: []string{"pods", "again"}})
	if _, err := r.factory.Resync(t.Context(), "pods", nil); !errors.Is(err, informer.ErrNotRunning) {
		t.Errorf("error before the start is %v", err)
	}
	r.start()
	r.synced()
	r.sink.want(t, true, "added pods default/a initial", "added pods other/b initial", "added again default/a initial", "added again other/b initial")
	ids := make(map[string]bool)
	for range 3 {
		done, err := r.factory.Resync(t.Context(), "pods", nil)
		if err != nil || done != (informer.Resynced{Objects: 2, Taken: 2}) {
			t.Errorf("resynced %+v, %v", done, err)
		}
		for _, d := range r.sink.peek() {
			ids[event.New(d, "r", 0, nil).ID] = true
		}
		r.sink.want(t, true, "sync pods default/a", "sync pods other/b")
	}
	if len(ids) != 6 {
		t.Errorf("%d ids of 3 rounds of 2 objects", len(ids))
	}
	var got []string
	done, err := r.factory.Resync(t.Context(), "again", func(_ context.Context, d *event.Delta) (event.Admission, error) {
		if d.Key().Name == "b" {
			return nil, nil
		}
		return event.CommitFunc(func() { got = append(got, describe(d)) }), nil
	})
	if err != nil || done != (informer.Resynced{Objects: 2, Taken: 1}) || !slices.Equal(got, []string{"sync again default/a"}) || len(r.sink.take()) > 0 {
		t.Errorf("got %q, %+v, %v", got, done, err)
	}
	if _, err := r.factory.Resync(t.Context(), "none", nil); !errors.Is(err, informer.ErrNoSource) {
		t.Errorf("error is %v", err)
	}
}

// TestResyncIsInterrupted: a reload that removes the source, a stop, and a cancelled request each
// end it with an error that says so.
func TestResyncIsInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		between func(r *rig, cancel func()) // called between two objects
		want    error
	}{
		"a reload": {func(r *rig, _ func()) {
			must.Report(r.t, r.factory.Reconfigure(r.t.Context(), nil, func(*informer.Held) {}))
		}, informer.ErrSourceChanged},
		"a stop": {func(r *rig, _ func()) {
			go r.stop()
			eventually(r.t, "it stops", func() bool {
				_, err := r.factory.Relist(r.t.Context(), "none")
				return errors.Is(err, informer.ErrNotRunning)
			})
		}, informer.ErrNotRunning},
		"no more asked": {func(_ *rig, cancel func()) { cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			a.put("default/b", "web")
			r := syncedRig(t, a, options{})
			r.sink.take()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.store.between = func() { c.between(r, cancel) }
			done, err := r.factory.Resync(ctx, "pods", nil)
			if !errors.Is(err, c.want) || done.Objects != 1 {
				t.Errorf("error is %v after %d objects, want %v after one", err, done.Objects, c.want)
			}
		})
	}
}

// TestRestoredEpoch: the objects of a first list are also for the routes of a former run if the
// watch existed then, even if none of its objects were saved.
func TestRestoredEpoch(t *testing.T) {
	for name, restored := range map[string]bool{"restored": true, "new": false} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			r := newRig(t, a, options{})
			want := 0
			if restored {
				r.watch.Restore(informer.Restored{})
				want = -1
			}
			r.start()
			r.synced()
			if d := r.sink.peek()[0]; !d.Initial || transit.Of(d).Epoch != want {
				t.Errorf("%s, epoch %d, want %d", describe(d), transit.Of(d).Epoch, want)
			}
		})
	}
}

// TestTransit: a delta records whether a list found it, and whether its object may have existed
// before.
func TestTransit(t *testing.T) {
	for selector, selective := range map[string]bool{"": false, "app=web": true} {
		t.Run(selector, func(t *testing.T) {
			a := newAPI(t)
			r := syncedRig(t, a, options{spec: informer.Spec{LabelSelector: selector}})
			a.put("default/watched", "web")
			eventually(t, "it is reported", func() bool { return len(r.sink.peek()) > 0 })
			if d := r.sink.peek()[0]; transit.Of(d).Listed || transit.Of(d).Selective != selective {
				t.Errorf("reported by a watch: %+v", *transit.Of(d))
			}
			r.sink.take()
			a.rewind(200, map[string]pod{"default/listed": {namespace: "default", name: "listed", uid: "uid-9", version: 160, app: "web"}})
			if _, err := r.factory.Relist(t.Context(), "pods"); err != nil {
				t.Fatal(err)
			}
			found := r.sink.peek()
			if len(found) != 2 {
				t.Fatalf("found %d deltas", len(found))
			}
			for _, d := range found {
				if !transit.Of(d).Listed || transit.Of(d).Selective != (selective && d.Op == event.Added) {
					t.Errorf("%s: %+v", describe(d), *transit.Of(d))
				}
			}
		})
	}
}
