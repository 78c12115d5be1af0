package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestFoldAfterAKill: an object is delivered, and the router is killed before a cut has it. While it is down the object is deleted. What
// the next one hears is added, then deleted: to a route that folds this must not come to nothing, because the added was delivered.
func TestFoldAfterAKill(t *testing.T) {
	s := sandboxtest.Start(t)
	for _, route := range []string{"deliver: latest", "overflow: fold, queue: {memory: 1}"} {
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
			maps.Make(routertest.ConfigMap("last", "1"))
			routertest.Poll(t, "the last", func() bool {
				return strings.Contains(strings.Join(routertest.Summary(h.delivered()), ","), "all added "+ns+"/last")
			})
			missing := 0
			for i := range n {
				if got := routertest.Of(h.delivered(), fmt.Sprintf("%s/m-%d", ns, i)); got[len(got)-1] != fmt.Sprintf("all deleted %s/m-%d", ns, i) {
					missing++
				}
			}
			if missing > 0 {
				t.Errorf("%d of %d objects that were delivered are gone, and their deletes were not delivered", missing, n)
			}
		})
	}
}
