package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	hist "github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// The routes of TestHistoryLedger: with limits, conditions, failures, a chain and a shadow, to
// standard output, a file and two webhooks.
const historyRoutes = `
history: {}
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}, file: {file: {path: %q, maxFiles: 0}}, hook: {webhook: {url: %q}}, strict: {webhook: {url: %q}}}
define: {mine: 'object.metadata.name.startsWith("o-")', even: 'mine && object.data.value.matches("[02468]$")'}
routes:
  - {name: all, from: maps, filter: mine, to: out}
  - {name: filed, from: maps, filter: mine && op != "added", to: file}
  - {name: hooked, from: maps, filter: mine, to: hook, batch: {size: 4, wait: 1ms}, retry: {backoff: 1ms, max: 20ms}}
  - {name: strict, from: maps, filter: mine, to: strict, retry: {attempts: 0}}
  - {name: limited, from: maps, filter: mine, to: file, limit: {every: 2s}}
  - {name: latest, from: maps, filter: mine, deliver: latest, to: hook, concurrency: 1, retry: {backoff: 1ms, max: 20ms}}
  - {name: calm, from: maps, filter: mine, debounce: {quiet: 300ms, max: 2s}, to: out}
  - {name: even, from: maps, when: even, to: file}
  - {name: lasting, from: maps, when: even, for: 1s, to: hook, retry: {backoff: 1ms, max: 20ms}}
  - {name: first, from: maps, filter: even, to: {route: second}}
  - {name: second, to: out}
  - {name: tried, shadow: true, from: maps, filter: mine, to: out}
`

// told identifies a delivery: of a route, about a version of an object.
type told struct{ route, uid, version string }

// TestHistoryLedger kills the router again and again while objects change, and compares its history
// afterwards with what it cannot know:
//
//   - with the receivers: each delivery that they saw is a decision, and each decision that was
//     delivered reached them. After a kill a change may come again as a later version, so a
//     delivery of the time after the last cut may be none.
//   - with a watch of the API server: each change is in the history, with the states, and no other.
func TestHistoryLedger(t *testing.T) {
	// Guarantee: history-exact
	t.Parallel()
	kills, steps := effort.Rounds(5, 12, 200), 40
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	seen := watchChanges(t, maps)
	flaky := newReceiver(t, func(*http.Request) int {
		if rand.IntN(5) == 0 { //nolint:gosec // no secret
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	strict := newReceiver(t, func(*http.Request) int {
		if rand.IntN(3) == 0 { //nolint:gosec // no secret
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	path := filepath.Join(t.TempDir(), "events")
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(historyRoutes, ns, path, flaky.URL+"/hook", strict.URL+"/strict"))
	book := newLedger(t)
	change := func(n int) {
		for range n {
			book.step(maps, fmt.Sprintf("o-%d", rand.IntN(12)), rand.IntN(5)) //nolint:gosec // no secret
		}
	}
	settle := func(r *routertest.Router) {
		newest := ""
		for _, version := range book.alive {
			newest = later(newest, version)
		}
		r.Wait(t, "the last change", func(events []routertest.Event) bool {
			return newest == "" || slices.ContainsFunc(events, func(e routertest.Event) bool { return e.Route == "all" && e.K8sResourceVersion == newest })
		})
		routertest.Poll(t, "empty queues", func() bool { return r.Metric(t, "deltarouter_route_queue_deltas") == 0 })
		routertest.Poll(t, "no condition that waits", func() bool { return r.Metric(t, "deltarouter_route_pending_objects") == 0 })
		r.Saved(t)
	}
	// The receivers' side: all deliveries, and those after the last cut before a kill.
	all, unsure := make(map[told]bool), make(map[told]bool)
	collect := func(out []routertest.Event) map[told]bool {
		now := make(map[told]bool)
		for _, e := range slices.Concat(out, flaky.life("/hook"), strict.life("/strict"), lines(t, path)) {
			now[told{e.Route, e.K8sUID, e.K8sResourceVersion}] = true
		}
		return now
	}
	var out []routertest.Event // of ended lives
	for n := range kills {
		r := routertest.StartFile(t, file)
		r.Ready(t)
		change(1 + rand.IntN(steps)) //nolint:gosec // no secret
		if n%3 == 2 {
			settle(r)
		}
		sure := collect(slices.Concat(out, r.Events()))
		r.Saved(t)                   // a cut has all of them, or they are pending and come again
		change(1 + rand.IntN(steps)) //nolint:gosec // no secret
		r.Kill(t)
		out = append(out, r.Events()...)
		for one := range collect(out) {
			if !sure[one] && !all[one] {
				unsure[one] = true
			}
			all[one] = true
		}
	}
	r := routertest.StartFile(t, file)
	r.Ready(t)
	change(steps)
	settle(r)
	r.Stop(t)
	all = collect(append(out, r.Events()...))

	changes, decisions := recorded(t, file)
	delivered, dead := 0, 0
	for one, outcomes := range decisions {
		told := slices.Contains(outcomes, hist.Delivered)
		if told {
			delivered++
		}
		if slices.Contains(outcomes, hist.DeadLettered) {
			dead++
		}
		if one.route != "first" && told && !all[one] {
			t.Errorf("%+v is delivered in the history, and no receiver got it", one)
		}
		if one.route == "tried" && told {
			t.Errorf("%+v is delivered, and in the shadow", one)
		}
	}
	late := 0
	for one := range all {
		switch {
		case slices.Contains(decisions[one], hist.Delivered):
		case unsure[one]:
			late++
		default:
			t.Errorf("%+v reached a receiver, and its decisions in the history are %v", one, decisions[one])
		}
	}
	want := seen()
	for one := range want {
		if !changes[one] {
			t.Errorf("the change %q is not in the history", one)
		}
	}
	for one := range changes {
		if !want[one] {
			t.Errorf("the history has a change that the API server does not: %q", one)
		}
	}
	t.Logf("%d kills, %d changes, %d deliveries, %d of them known from their repetition or not at all, %d decisions delivered, %d dead letters",
		kills, len(want), len(all), late, delivered, dead)
	if delivered == 0 || dead == 0 {
		t.Error("nothing was delivered, or nothing failed: the test is void")
	}
}

func later(a, b string) string {
	if number(a) > number(b) {
		return a
	}
	return b
}

// lines returns the events in a file.
func lines(t *testing.T, path string) (events []routertest.Event) {
	t.Helper()
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	must.Succeed(t, err)
	defer func() { _ = file.Close() }()
	for in := bufio.NewScanner(file); in.Scan(); {
		var e routertest.Event
		if json.Unmarshal(in.Bytes(), &e) == nil { // a kill tears a line
			events = append(events, e)
		}
	}
	return events
}

// watchChanges watches the ConfigMaps of the API server, and returns the changes until the last
// object that exists then.
func watchChanges(t *testing.T, maps routertest.Objects) (seen func() map[string]bool) {
	t.Helper()
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	ctx, stop := context.WithCancel(t.Context())
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	must.Succeed(t, err)
	var mu sync.Mutex
	changes, last := make(map[string]bool), ""
	var running sync.WaitGroup
	running.Go(func() {
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			mu.Lock()
			last = o.GetName()
			if strings.HasPrefix(last, "o-") {
				changes[nameOf(e.Type, string(o.GetUID()), o.GetResourceVersion())] = true
			}
			mu.Unlock()
		}
	})
	t.Cleanup(func() { stop(); w.Stop(); running.Wait() })
	return func() map[string]bool {
		maps.Make(routertest.ConfigMap("end", "1"))
		routertest.Poll(t, "the end of the watch", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return last == "end"
		})
		mu.Lock()
		defer mu.Unlock()
		return changes
	}
}

// nameOf names a change. A delete has another version in the history, that of the last state.
func nameOf(kind watch.EventType, uid, version string) string {
	switch kind {
	case watch.Added:
		return "added " + uid + " " + version
	case watch.Deleted:
		return "deleted " + uid
	case watch.Modified, watch.Bookmark, watch.Error:
	}
	return "updated " + uid + " " + version
}

// recorded reads the history of a stopped router: the changes, and the outcomes of each
// decision.
func recorded(t *testing.T, file string) (changes map[string]bool, decisions map[told][]hist.Outcome) {
	t.Helper()
	reader, err := hist.OpenFolder(filepath.Join(filepath.Dir(file), "state", hist.Folder))
	must.Succeed(t, err)
	reader.Damaged = func(path string, err error) { t.Errorf("%s: %v", path, err) }
	changes, decisions = make(map[string]bool), make(map[told][]hist.Outcome)
	must.Succeed(t, reader.Records(t.Context(), hist.Span{}, func(record any) error {
		switch r := record.(type) {
		case *hist.Change:
			if !strings.HasPrefix(r.Key.Name, "o-") {
				return nil
			}
			kind := map[event.Op]watch.EventType{event.Added: watch.Added, event.Updated: watch.Modified, event.Deleted: watch.Deleted}[r.Op]
			name := nameOf(kind, r.UID, r.Version)
			changes[name] = true // after a crash it may come again
			if r.Before == "" && r.Op != event.Added || r.After == "" && r.Op != event.Deleted {
				t.Errorf("the change %q lacks a state", name)
			}
		case *hist.Decision:
			one := told{r.Route, r.UID, r.Version}
			decisions[one] = append(decisions[one], r.Outcome)
		case *hist.Lost:
			t.Errorf("%d records are lost: %s", r.Number, r.Reason)
		}
		return nil
	}))
	return changes, decisions
}
