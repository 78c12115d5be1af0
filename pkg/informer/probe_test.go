package informer_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// exchange replaces the cluster by another one. Open watches stay open, and receive no more events.
func (a *api) exchange(cluster string, version int, pods map[string]pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cluster, a.version, a.pods, a.history = cluster, version, maps.Clone(pods), nil
}

// podsOf makes pods of these names, with versions from version on.
func podsOf(cluster string, version int, names ...string) map[string]pod {
	pods := make(map[string]pod)
	for i, name := range names {
		pods["default/"+name] = pod{namespace: "default", name: name, uid: cluster + "-" + name, app: "web", version: version + i}
	}
	return pods
}

// The API server belongs to another cluster, with higher resourceVersions, from its first answer
// on.
func TestRestartInAnotherCluster(t *testing.T) {
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o)
		if d.cluster != "one" {
			t.Fatalf("on disk is cluster %q", d.cluster)
		}
		a.exchange("two", 500, podsOf("two", 401, "a", "b", "d"))
		var there atomic.Bool
		a.onRequest(func(http.ResponseWriter, *http.Request) bool {
			if !there.Load() {
				panic(http.ErrAbortHandler)
			}
			return false
		})
		r := restart(t, a, o, d)
		eventually(t, "a complaint", func() bool { s, _ := r.factory.Status("pods"); return s.Reason != "" })
		there.Store(true)
		r.sink.want(t, true, "added pods default/a", "added pods default/b", "added pods default/d",
			"deleted pods default/a stale", "deleted pods default/b stale", "deleted pods default/c stale")
		r.synced()
		if got := r.metric("source_relists_total", "moved"); got != 1 {
			t.Errorf("source_relists_total = %v, want 1", got)
		}
		r.shutdown(d)
		if d.cluster != "two" || d.fed != "500" || d.relisting {
			t.Errorf("on disk %+v", d)
		}
		r = restart(t, a, o, d)
		r.synced()
		if n, got := a.lists(), r.sink.take(); n > 0 || len(got) > 0 {
			t.Errorf("%d lists, deltas %v", n, got)
		}
	})
}

// A crash in the middle of the list of the other cluster: the state belongs to neither cluster, and
// records that.
func TestCrashWhileMoving(t *testing.T) {
	modes(t, func(t *testing.T, o options) {
		a, d := saved(t, o)
		a.exchange("two", 500, podsOf("two", 401, "a", "b", "c"))
		o.config.Gate = d.gate
		r := newRig(t, a, o)
		r.watch.Restore(restoredFrom(t, r, d))
		held := make(chan struct{})
		var n atomic.Int32
		r.sink.admit = func(ctx context.Context, _ *event.Delta) error {
			if n.Add(1) == 3 {
				close(held)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		r.start()
		<-held
		r.save(d)
		r.stop()
		if d.cluster != "one" || !d.relisting {
			t.Errorf("on disk %+v", d)
		}
		r = restart(t, a, o, d)
		r.synced()
		r.shutdown(d)
		if d.cluster != "two" || d.relisting || len(d.objects) != 3 {
			t.Errorf("on disk %+v", d)
		}
		for key, text := range d.objects {
			if !strings.Contains(text, `"uid":"two-`) {
				t.Errorf("%s is of the other cluster: %s", key, text)
			}
		}
	})
}

// The API server behind an open watch becomes another, or is restored from a backup: the watch only
// becomes silent.
func TestPatrol(t *testing.T) {
	// Guarantee: server-rewound
	for reason, exchange := range map[string]func(a *api){
		"moved":   func(a *api) { a.exchange("two", 500, podsOf("two", 401, "a", "d")) },
		"rewound": func(a *api) { a.exchange("one", 102, podsOf("one", 101, "a", "d")) },
	} {
		bubble(t, reason, func(t *testing.T) {
			a := newAPI(t)
			a.exchange("one", 103, podsOf("one", 101, "a", "b", "c"))
			r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 20 * time.Millisecond}})
			r.sink.take()
			before := a.seen("PROBE")
			eventually(t, "probes without a reason", func() bool { return a.seen("PROBE") > before+5 })
			if n := a.lists() + a.seen("WATCH"); n != 1 {
				t.Errorf("%d lists and watches, want one: a probe that finds nothing changes nothing", n)
			}
			exchange(a)
			if reason == "moved" {
				r.sink.want(t, true, "added pods default/a", "added pods default/d",
					"deleted pods default/a stale", "deleted pods default/b stale", "deleted pods default/c stale")
			} else {
				r.sink.want(t, true, "added pods default/d", "deleted pods default/b stale", "deleted pods default/c stale")
			}
			eventually(t, "relist counted", func() bool { return r.metric("source_relists_total", reason) == 1 })
			before = a.seen("PROBE")
			eventually(t, "probes of what is there now", func() bool { return a.seen("PROBE") > before+5 })
			if n := a.lists(); n != 2 {
				t.Errorf("%d lists, want two", n)
			}
			a.put("default/a", "db")
			r.sink.want(t, false, "updated pods default/a")
		})
	}
}

// A probe requests the latest state: an older one may come from a replica that lags behind. It has
// no selectors, with which it would cost the API server a search.
func TestProbeIsQuorumRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		queries := make(chan string, 1000)
		a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) == "PROBE" {
				queries <- r.URL.RawQuery
			}
			return false
		})
		syncedRig(t, a, options{
			spec: informer.Spec{LabelSelector: "app=web"}, config: informer.Config{ProbeInterval: 10 * time.Millisecond},
		})
		a.dropWatches()
		for range 5 {
			if got := <-queries; got != "limit=1" {
				t.Errorf("probed with %s", got)
			}
		}
	})
}

// A client that may not read the identity of the cluster continues without it, with one log line.
func TestIdentityForbidden(t *testing.T) {
	a, d := saved(t, options{})
	a.mu.Lock()
	a.cluster = ""
	a.mu.Unlock()
	r := restart(t, a, options{config: informer.Config{ProbeInterval: 10 * time.Millisecond}}, d)
	r.synced()
	before := a.seen("PROBE")
	eventually(t, "probes", func() bool { return a.seen("PROBE") > before+3 })
	if n, got := a.lists(), r.sink.take(); n > 0 || len(got) > 0 {
		t.Errorf("%d lists, deltas %v", n, got)
	}
	if n := strings.Count(r.log.String(), "does not give the uid of namespace kube-system"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log)
	}
	r.shutdown(d)
	if d.cluster != "one" {
		t.Errorf("on disk is cluster %q: what was known is forgotten", d.cluster)
	}
}

// Many watches that start at once share a few requests.
func TestIdentityIsShared(t *testing.T) {
	a := newAPI(t)
	release := make(chan struct{})
	r := newRig(t, a, options{})
	const watches = 50
	for i := range watches {
		spec := informer.Spec{Namespace: fmt.Sprint("ns-", i)}
		spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
		r.factory.Watch(spec, newMemory(), informer.Source{Name: spec.Namespace})
	}
	a.onRequest(func(http.ResponseWriter, *http.Request) bool {
		<-release // so that all wait at once
		return false
	})
	r.start()
	eventually(t, "discovery", func() bool { return a.seen("DISCOVERY") > watches })
	close(release)
	for i := range watches {
		<-r.factory.Synced(fmt.Sprint("ns-", i))
	}
	if n := a.seen("IDENTITY"); n > watches/2 {
		t.Errorf("asked %d times for %d watches", n, watches)
	}
}

// An open watch continues when the API server begins to refuse requests. The source reports the
// refusal, and its end.
func TestRefusedWhileOpen(t *testing.T) {
	for reason, code := range map[string]int{"Forbidden": 403, "Unauthorized": 401, "ServiceUnavailable": 503} {
		bubble(t, reason, func(t *testing.T) {
			a := newAPI(t)
			a.put("default/a", "web")
			r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 20 * time.Millisecond}})
			r.sink.take()
			probes := a.seen("PROBE")
			// so that one has ended
			eventually(t, "two probes", func() bool { return a.seen("PROBE") >= probes+2 })
			a.onRequest(func(w http.ResponseWriter, _ *http.Request) bool {
				fail(w, code, reason, "no "+reason)
				return true
			})
			eventually(t, "the reason is named", func() bool {
				s, _ := r.factory.Status("pods")
				return strings.Contains(s.Reason, "the watch is open, but would not be opened again: no "+reason) && s.Synced && s.Refused == (code == 403)
			})
			a.put("default/a", "db")
			r.sink.want(t, false, "updated pods default/a")
			a.onRequest(nil)
			eventually(t, "it is over", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
		})
	}
}

// A client that may watch and not list is refused each probe; the watch continues.
func TestMayNotProbe(t *testing.T) {
	a := newAPI(t)
	var refused atomic.Int32
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != "PROBE" {
			return false
		}
		refused.Add(1)
		fail(w, http.StatusForbidden, "Forbidden", "no")
		return true
	})
	r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 10 * time.Millisecond}})
	eventually(t, "some probes", func() bool { return refused.Load() > 3 })
	if s, _ := r.factory.Status("pods"); s.Reason != "" {
		t.Error(s.Reason)
	}
}

// TestProbeOfName: a client that may list one object only by its name probes with the selector.
func TestProbeOfName(t *testing.T) {
	a := newAPI(t)
	a.put("default/a", "web")
	var probes atomic.Int32
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != "PROBE" {
			return false
		}
		if r.URL.Query().Get("fieldSelector") == "" {
			fail(w, http.StatusForbidden, "Forbidden", "no")
			return true
		}
		probes.Add(1)
		return false
	})
	syncedRig(t, a, options{
		spec: informer.Spec{FieldSelector: "metadata.name=a"}, config: informer.Config{ProbeInterval: 10 * time.Millisecond},
	})
	eventually(t, "probes", func() bool { return probes.Load() > 3 })
}

// TestSlowProbe: probes without an answer do not keep a watch from being opened.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := syncedRig(t, a, options{config: informer.Config{HeaderTimeout: 500 * time.Millisecond}})
		r.sink.take()
		a.onRequest(func(_ http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) != "PROBE" {
				return false
			}
			<-r.Context().Done()
			return true
		})
		a.dropWatches()
		a.put("default/a", "db")
		r.sink.want(t, false, "updated pods default/a")
	})
}
