package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// chainRoutes has a chain: split makes two events of each change, which pass through a guest at
// step to web and all; web takes one of the two. The guest reports the event that it got. %[3]s is
// the part for web.
const chainRoutes = `
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
handlers: {summary: {wasm: {module: %[2]q, config: {note: none}}}}
sinks:
  hook: {webhook: {url: %[4]q}}
routes:
  - name: split
    from: maps
    filter: object.metadata.name != "kube-root-ca.crt"
    emit: '[event({"team": "web"}).withType("one"), event({"team": "data"}).withType("two")]'
    to: {route: step}
  - {name: step, handler: summary, key: event.data.team, to: [{route: %[3]s}, {route: all}]}
  - name: %[3]s
    id: web
    filter: event.data.event.contains(" one ")
    emit: '{"of": event.data.event, "op": op, "name": object.metadata.name, "value": object.data.value}'
    retry: {backoff: 10ms, max: 50ms}
    to: hook
  - name: all
    emit: '{"of": event.data.event, "op": op, "name": object.metadata.name, "value": object.data.value}'
    retry: {backoff: 10ms, max: 50ms}
    to: hook
`

// chainEvent is an event at the webhook.
type chainEvent struct {
	ID, Route string
	Data      struct{ Of, Op, Name, Value string }
}

func (h *hook) chainEvents(t *testing.T) (all []chainEvent) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range h.got {
		var one chainEvent
		must.Succeed(t, json.Unmarshal([]byte(text), &one))
		all = append(all, one)
	}
	return all
}

// sum returns each route's deliveries in the form "all added a-1 team web", one for each delivery,
// and the number of deliveries of each id.
func sum(all []chainEvent) (what []string, ids map[string]int) {
	ids = make(map[string]int)
	for _, one := range all {
		of := strings.Fields(one.Data.Of) // id type source subject route seconds team
		route := strings.Replace(one.Route, "mobile", "web", 1)
		what = append(what, fmt.Sprintf("%s %s %s=%s %s of %s", route, one.Data.Op, one.Data.Name, one.Data.Value, of[len(of)-1], of[1]))
		ids[one.ID]++
	}
	slices.Sort(what)
	return what, ids
}

// TestChainRoutes shows that an event arrives once at each end of a chain of routes, even if the
// router is killed at any moment, or a reload changes a target.
func TestChainRoutes(t *testing.T) {
	// Guarantee: chain-delivery, chain-kept
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newHook(t)
	module, err := filepath.Abs("../../sdk/conformance/c/summary.wasm")
	must.Succeed(t, err)
	config := func(web string) string { return fmt.Sprintf(chainRoutes, ns, module, web, h.URL) }
	file := routertest.Install(t, s.Kubeconfig(), config("web"))
	h.answer(http.StatusServiceUnavailable)
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Saved(t) // otherwise a restart would treat existing objects as old
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	var want []string
	change := func(life int) {
		for i := range 12 {
			name := fmt.Sprintf("m-%d-%d", life, i)
			maps.Make(routertest.ConfigMap(name, "1"))
			maps.Change(name, `{"data":{"value":"2"}}`)
			for op, value := range map[string]string{"added": "1", "updated": "2"} {
				want = append(want, fmt.Sprintf("web %s %s=%s web of one", op, name, value),
					fmt.Sprintf("all %s %s=%s web of one", op, name, value), fmt.Sprintf("all %s %s=%s data of two", op, name, value))
			}
		}
	}
	// The sink is unavailable, and the test does not wait, so the seen, forwarded and saved deltas
	// differ from one route to the next.
	for life := range 3 {
		change(life)
		r.Kill(t)
		r = routertest.StartFile(t, file)
	}
	r.Ready(t)
	change(3)

	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	head, _, _ := strings.Cut(string(text), "\nsources:")
	r.Reload(t, file, head+config("mobile"), true)
	change(4)
	slices.Sort(want)
	owes := func(routes ...string) (n float64) {
		for _, route := range routes {
			n += r.Metric(t, fmt.Sprintf(`deltarouter_route_queue_deltas{route=%q}`, route))
		}
		return n
	}
	routertest.Poll(t, "the ends to owe all of it", func() bool { return owes("split", "step") == 0 && owes("mobile", "all") == float64(len(want)) })
	r.Saved(t)
	r.Kill(t)
	r = routertest.StartFile(t, file)
	h.answer(http.StatusOK)
	routertest.Poll(t, "all of it to be told", func() bool { return h.count() >= len(want) })
	r.Ready(t)
	routertest.Poll(t, "nothing to be owed", func() bool { return owes("split", "step", "mobile", "all") == 0 })
	what, ids := sum(h.chainEvents(t))
	routertest.Exactly(t, what, want)
	if len(ids) != len(want) {
		t.Errorf("%d ids for %d events", len(ids), len(want))
	}
	if n := r.Metric(t, `deltarouter_route_events_total{result="delivered",route="mobile",sink="hook"}`); n != float64(len(want)/3) {
		t.Errorf("mobile delivered %v events, want %d", n, len(want)/3)
	}
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestChainRoutesExchanged shows that a reload that only changes the target of a route applies to
// later events; earlier ones stay at the old target. Each event is delivered once.
func TestChainRoutesExchanged(t *testing.T) {
	// Guarantee: reload-chain
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	config := func(first, second string) string {
		return fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks:
  hook: {webhook: {url: %q}}
routes:
  - {name: makes, from: maps, filter: 'object.metadata.name.startsWith("m-")', to: {route: %s}}
  - {name: idle, from: maps, filter: 'object.metadata.name == "never"', to: {route: %s}}
  - {name: left, emit: '{"name": object.metadata.name}', retry: {backoff: 10ms, max: 50ms}, to: hook}
  - {name: right, emit: '{"name": object.metadata.name}', retry: {backoff: 10ms, max: 50ms}, to: hook}
`, ns, h.URL, first, second)
	}
	file := routertest.InstallAPI(t, s.Kubeconfig(), config("left", "right"))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	head, _, _ := strings.Cut(string(text), "\nsources:")
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	var want []string
	for round, target := range []string{"left", "right", "left", "right"} {
		if round > 0 {
			r.Reload(t, file, head+config(target, map[string]string{"left": "right", "right": "left"}[target]), true)
		}
		for i := range 5 {
			name := fmt.Sprintf("m-%d-%d", round, i)
			maps.Make(routertest.ConfigMap(name, "1"))
			want = append(want, target+" "+name)
		}
		// before the next reload, which would change their target
		routertest.Poll(t, "the route to have them", func() bool {
			return r.Metric(t, fmt.Sprintf(`deltarouter_route_queue_deltas{route=%q}`, target)) == float64(5*(round/2+1))
		})
	}
	if said, code := routertest.Control(t, file, "resync", "-route", "right"); code == 0 || !strings.Contains(said, "name one of its upstream routes: makes") {
		t.Errorf("router resync -route right: %d, %s", code, said)
	}
	h.answer(http.StatusOK)
	routertest.Poll(t, "all of it to be told", func() bool { return h.count() >= len(want) })
	r.Ready(t)
	var got []string
	for _, e := range h.chainEvents(t) {
		got = append(got, e.Route+" "+e.Data.Name)
	}
	routertest.Exactly(t, got, want)
	if log := r.Log(); strings.Contains(log, "not reloaded") {
		t.Error("a reload was refused")
	}
}

// TestChainRouteIsFull shows that a full route blocks its upstream route at that target only, that
// the status names it, and that nothing is lost.
func TestChainRouteIsFull(t *testing.T) {
	// Guarantee: chain-delivery
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	r := routertest.StartFile(t, routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: makes, from: maps, filter: 'object.metadata.name.startsWith("m-")', to: [{route: slow}, {route: quick}]}
  - {name: slow, queue: {memory: 2, disk: 0}, emit: '{"name": object.metadata.name}', retry: {backoff: 10ms, max: 50ms}, to: hook}
  - {name: quick, to: out}
`, ns, h.URL)))
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	var want []string
	for i := range 10 {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m-%d", i), "1"))
		want = append(want, fmt.Sprintf("quick added %s/m-%d", ns, i))
	}
	r.Expect(t, want...)
	var said string
	routertest.Poll(t, "the routes to be named", func() bool {
		said = r.Status(t)
		return strings.Contains(said, `routes/makes: it waits for room in the queue of route "slow"`)
	})
	// the last deltas may exceed the bound
	if n := r.Metric(t, `deltarouter_route_queue_deltas{route="slow"}`); n > 3 {
		t.Errorf("a route with room for 2 owes %v", n)
	}
	h.answer(http.StatusOK)
	routertest.Poll(t, "all of it to be told", func() bool { return h.count() >= 10 })
	routertest.Poll(t, "nothing to be named", func() bool { _, said = r.Get(t, "/readyz"); return !strings.Contains(said, "routes/makes") })
	names := make(map[string]int)
	for _, e := range h.chainEvents(t) {
		names[e.Data.Name]++
	}
	if len(names) != 10 || h.count() != 10 {
		t.Errorf("%d events about %d objects, want 10 each", h.count(), len(names))
	}
}
