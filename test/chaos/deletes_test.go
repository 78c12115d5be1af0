package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestDeletedAfterTheFirstDelivery kills the router as soon as new objects are delivered, deletes
// them, and drops the history. Routes that read fields of the objects must get the deletes too.
func TestDeletedAfterTheFirstDelivery(t *testing.T) {
	// Guarantee: delete-has-state
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	h := newReceiver(t, answer(http.StatusOK))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - {name: plain, from: maps, to: hook}
  - {name: filtered, from: maps, filter: 'object.data.value == "1"', to: hook}
  - {name: emitted, from: maps, emit: '{"value": object.data.value}', to: hook}
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Saved(t)
	const n = 10
	createMany(t, s, ns, "m", n)
	routertest.Poll(t, "the objects", func() bool { return h.count() >= 3*n })
	r.Kill(t)
	var want []string
	for i := range n {
		name := fmt.Sprintf("m-%d", i)
		maps.Remove(name)
		for _, route := range []string{"plain", "filtered", "emitted"} {
			want = append(want, route+" added "+ns+"/"+name, route+" deleted "+ns+"/"+name)
		}
	}
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t)

	r = routertest.StartFile(t, file)
	r.Ready(t)
	maps.Make(routertest.ConfigMap("last", "1"))
	for _, route := range []string{"plain", "filtered", "emitted"} {
		want = append(want, route+" added "+ns+"/last")
	}
	came := func() []string { // deltas that were pending in the last cut arrive twice
		return slices.Compact(slices.Sorted(slices.Values(routertest.Summary(h.delivered()))))
	}
	routertest.Poll(t, "the last", func() bool { return len(came()) >= len(want) })
	routertest.Exactly(t, came(), want)
}

// TestFoldAfterAKill delivers an object and kills the router before a cut contains it. While the
// router is down the object is deleted. The next router sees added, then deleted. A route that
// coalesces must not reduce that to nothing, because the added was delivered.
func TestFoldAfterAKill(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Start(t)
	for _, route := range []string{"deliver: latest", "overflow: coalesce, queue: {memory: 1}"} {
		t.Run(route, func(t *testing.T) {
			ns := s.Namespace(t)
			maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
			h := newReceiver(t, answer(http.StatusOK))
			file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q}}}
routes: [{name: all, from: maps, to: hook, %s, batch: {wait: 300ms, size: 50}}]
`, ns, h.URL, route))
			r := routertest.StartFile(t, file)
			r.Ready(t)
			r.Saved(t)
			const n = 20
			createMany(t, s, ns, "m", n)
			routertest.Poll(t, "the objects", func() bool { return h.count() >= n })
			r.Kill(t)
			for i := range n {
				maps.Remove(fmt.Sprintf("m-%d", i))
			}
			routertest.StartFile(t, file).Ready(t)
			for i := range n {
				name := fmt.Sprintf("%s/m-%d", ns, i)
				routertest.Poll(t, "the delete of "+name+", which was delivered", func() bool {
					got := routertest.Of(h.delivered(), name)
					return got[len(got)-1] == "all deleted "+name
				})
			}
		})
	}
}

// TestTwoDeletesAfterAKill deletes a delivered object and creates it again, and kills the router
// before either is delivered. While the router is down the new object is deleted too. The delete of
// the first object must be delivered, even to a route that coalesces.
func TestTwoDeletesAfterAKill(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	h := newReceiver(t, answer(http.StatusOK))
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q}}}
routes: [{name: all, from: maps, to: hook, deliver: latest, batch: {wait: 300ms, size: 50}}]
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	const n = 10
	first := createMany(t, s, ns, "m", n)
	routertest.Poll(t, "the objects", func() bool { return h.count() >= n })
	r.Saved(t)
	tried := make(chan struct{}, 1000)
	h.now(func(*http.Request) int { tried <- struct{}{}; return http.StatusServiceUnavailable })
	for i := range n {
		maps.Remove(fmt.Sprintf("m-%d", i))
	}
	createMany(t, s, ns, "m", n)
	<-tried // by then the identities of the new ones are on disk
	r.Kill(t)
	for i := range n {
		maps.Remove(fmt.Sprintf("m-%d", i))
	}
	h.now(answer(http.StatusOK))
	routertest.StartFile(t, file).Ready(t)
	for i, uid := range first {
		routertest.Poll(t, fmt.Sprintf("the delete of the first m-%d, which was delivered", i), func() bool {
			deleted := make(map[string]bool)
			take(h.delivered(), make(map[string]string), deleted)
			return deleted[uid]
		})
	}
}
