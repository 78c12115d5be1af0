package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestWatchesAcrossKills makes one change with many more dependents than the queue holds. The
// receiver takes a few in each life, and the router is killed or stopped in between. Every
// dependent must arrive, and none that had arrived before a cut may be repeated.
func TestWatchesAcrossKills(t *testing.T) {
	// Guarantee: watches
	t.Parallel()
	const n, share = 300, 40
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("home", "closed", "role=home"))
	createMany(t, s, ns, "child", n)
	var room atomic.Int64 // number of further events that the receiver takes
	h := newReceiver(t, func(*http.Request) int {
		if room.Add(-1) < 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  homes: {resource: v1/configmaps, namespaces: %s, labelSelector: role=home}
  children: {resource: v1/configmaps, namespaces: %[1]s, labelSelector: "!role", indexes: {byHome: '"home"'}}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - name: open
    from: children
    ops: [added]
    filter: get("homes", object.metadata.namespace, "home").data.value == "open"
    watches: {homes: 'changed("data.value") ? lookup("children.byHome", object.metadata.name) : []'}
    queue: {memory: 20}
    retry: {backoff: 10ms, max: 50ms}
    to: hook
`, ns, h.URL))
	r := routertest.StartFile(t, file, "-drain-timeout", "100ms")
	r.Ready(t)
	m.Change("home", `{"data": {"value": "open"}}`)
	for life := 1; life <= 4; life++ {
		room.Store(share)
		routertest.Poll(t, "the receiver to be full", func() bool { return h.count() == life*share && room.Load() < 0 })
		if life == 2 {
			// A change that concerns no dependent must not disturb.
			m.Change("home", `{"metadata": {"labels": {"more": "x"}}}`)
		}
		if life%2 == 0 {
			if code := r.Stop(t); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		} else {
			r.Saved(t)
			r.Kill(t)
		}
		r = routertest.StartFile(t, file, "-drain-timeout", "100ms")
	}
	room.Store(10 * n)
	routertest.Poll(t, "every dependent", func() bool { return h.count() >= n })
	times := make(map[string]int)
	for _, e := range h.delivered() {
		times[strings.TrimPrefix(e.Subject, ns+"/")]++
	}
	for i := range n {
		if name := fmt.Sprintf("child-%d", i); times[name] != 1 {
			t.Errorf("%s came %d times", name, times[name])
		}
	}
	r.Stop(t)
}
