package informer_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// recordProbes records the paths of probes.
func recordProbes(a *api, answer func(w http.ResponseWriter, r *http.Request) bool) (paths func() []string) {
	var mu sync.Mutex
	var all []string
	a.onRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) == "PROBE" {
			mu.Lock()
			all = append(all, r.URL.Path)
			mu.Unlock()
		}
		return answer(w, r)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestProbesAreShared: the watches of a resource share their probes, also with different
// namespaces and selectors. A probe without an answer does not keep them from being opened.
func TestProbesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.put("default/a", "web")
		r := newRig(t, a, options{config: informer.Config{HeaderTimeout: time.Hour}})
		const watches = 40
		for i := range watches - 1 {
			spec := informer.Spec{Namespace: fmt.Sprint("ns-", i/2), LabelSelector: []string{"", "app=web"}[i%2]}
			spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
			r.factory.Watch(spec, newMemory(), informer.Source{Name: fmt.Sprint("source-", i)})
		}
		r.start()
		open := func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.watching == watches
		}
		eventually(t, "all watches are open", open)
		release := make(chan struct{})
		paths := recordProbes(a, func(_ http.ResponseWriter, r *http.Request) bool {
			if kindOf(r) == "PROBE" {
				<-release
			}
			return false
		})
		before := a.seen("WATCH")
		a.dropWatches()
		eventually(t, "all watches are open again", func() bool { return a.seen("WATCH") == before+watches && open() })
		close(release)
		eventually(t, "a second probe", func() bool { return len(paths()) > 1 })
		r.stop()
		got := paths()
		if len(got) > watches/4 || slices.ContainsFunc(got, func(path string) bool { return path != "/api/v1/pods" }) {
			t.Errorf("%d watches sent %d probes: %v", watches, len(got), got)
		}
	})
}

// TestProbesOfNamespaces: the watches of a namespace share their probes. Those of several share
// them if the API server says that the client may list in all namespaces; if not, it is not tried.
func TestProbesOfNamespaces(t *testing.T) {
	for name, c := range map[string]struct {
		second, answer string
		refused        bool     // the request itself
		wants          []string // after the first requests
	}{
		"one":     {second: "default", answer: "{}", wants: []string{"default"}},
		"denied":  {second: "other", answer: `{"status":{"allowed":false}}`, wants: []string{"default", "other"}},
		"allowed": {second: "other", answer: `{"status":{"allowed":true}}`, wants: []string{""}},
		"refused": {second: "other", answer: `{"status":{"allowed":true}}`, refused: true, wants: []string{"default", "other"}},
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			a.exchange("one", 103, podsOf("one", 101, "a", "b"))
			paths := recordProbes(a, func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
					fmt.Fprint(w, c.answer)
				case c.refused && r.URL.Path == "/api/v1/pods":
					fail(w, http.StatusForbidden, "Forbidden", "no rights in all namespaces")
				default:
					return false
				}
				return true
			})
			r := newRig(t, a, options{spec: informer.Spec{Namespace: "default"}, config: informer.Config{ProbeInterval: 10 * time.Millisecond}})
			spec := informer.Spec{Namespace: c.second, LabelSelector: "app=web"}
			spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
			r.factory.Watch(spec, newMemory(), informer.Source{Name: "web"})
			r.start()
			r.synced()
			<-r.factory.Synced("web")
			a.dropWatches() // both take part from now on
			seen := func() (namespaces []string, n int) {
				all := paths()
				for _, path := range all[min(len(all), 20):] {
					namespace, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/api/v1/pods"), "/api/v1/namespaces/"), "/")
					namespaces = append(namespaces, namespace)
				}
				slices.Sort(namespaces)
				return slices.Compact(namespaces), len(all)
			}
			eventually(t, "probes", func() bool { _, n := seen(); return n > 60 })
			got, _ := seen()
			if !slices.Equal(got, c.wants) {
				t.Errorf("probed %q, want %q", got, c.wants)
			}
			for _, s := range r.factory.Statuses() {
				if s.Reason != "" {
					t.Error(s)
				}
			}
			a.exchange("one", 50, podsOf("one", 40, "a"))
			eventually(t, "the restored backup is found", func() bool {
				return r.metric("source_relists_total", "rewound", "pods") == 1 && r.metric("source_relists_total", "rewound", "web") == 1
			})
		})
	}
}

// TestLostDeletes: a probe has the number of objects. If the cache has more at the same
// resourceVersion, they are listed once.
func TestLostDeletes(t *testing.T) {
	// Guarantee: lost-deletes
	for name, c := range map[string]struct {
		lose  func(a *api)
		wants string // a delta; empty: none
	}{
		"deleted":   {func(a *api) { a.lose("default/b") }, "deleted pods default/b stale"},
		"uncounted": {func(a *api) { a.setUncounted(1) }, ""}, // the number of the API server is wrong
	} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI(t)
			for _, pod := range []string{"a", "b", "c"} {
				a.put("default/"+pod, "web")
			}
			r := syncedRig(t, a, options{config: informer.Config{ProbeInterval: 10 * time.Millisecond}})
			r.sink.take()
			// The version of a probe is compared when the watch has passed it.
			version := 0
			pass := func() {
				before := a.seen("PROBE")
				eventually(t, "probes", func() bool { return a.seen("PROBE") > before+1 })
				version++
				a.put("default/a", fmt.Sprint(version))
			}
			for range 5 {
				pass()
			}
			if n := a.lists(); n != 1 {
				t.Fatalf("%d lists although nothing is lost\n%s", n, r.log)
			}
			c.lose(a)
			for r.metric("source_relists_total", "miscounted") == 0 {
				pass()
			}
			for range 10 {
				pass()
			}
			if n := r.metric("source_relists_total", "miscounted"); n != 1 {
				t.Errorf("%v lists", n)
			}
			var lost []string
			for _, d := range r.sink.take() {
				if !strings.Contains(d, "default/a") {
					lost = append(lost, d)
				}
			}
			if got := strings.Join(lost, ","); got != c.wants {
				t.Errorf("deltas %q, want %q", got, c.wants)
			}
			if log := r.log.String(); strings.Count(log, "deletions were lost") == 0 {
				t.Error(log)
			}
			eventually(t, "the status is clean", func() bool { s, _ := r.factory.Status("pods"); return s.Reason == "" })
		})
	}
}

// lose deletes a pod, and no watch receives the event.
func (a *api) lose(key string) {
	a.mu.Lock()
	a.lost = a.version + 1
	a.mu.Unlock()
	a.delete(key)
}

func (a *api) setUncounted(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uncounted = n
}
