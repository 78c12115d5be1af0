package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestFoldAfterAKill: an object is delivered, and the router is killed before a cut has it. While it is down the object is deleted. What
// the next one hears is added, then deleted: to a route that folds this must not come to nothing, because the added was delivered.
func TestFoldAfterAKill(t *testing.T) {
	s := sandboxtest.Start(t)
	for _, route := range []string{"deliver: latest", "overflow: fold, queue: {memory: 1}"} {
		t.Run(route, func(t *testing.T) {
			ns := s.Namespace(t)
			maps := use(t, s, configMaps, ns)
			h := newReceiver(t, answer(http.StatusOK))
			file := install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q}}}
routes: [{name: all, from: maps, to: hook, %s, batch: {wait: 300ms, size: 50}}]
`, ns, h.URL, route))
			r := startFile(t, file)
			r.ready(t)
			r.saved(t)
			const n = 20
			createMany(t, s, ns, "m", n)
			poll(t, "the objects", func() bool { return h.count() >= n })
			r.kill(t)
			for i := range n {
				maps.remove(fmt.Sprintf("m-%d", i))
			}
			startFile(t, file).ready(t)
			maps.create(configMap("last", "1"))
			poll(t, "the last", func() bool {
				return strings.Contains(strings.Join(summary(h.delivered()), ","), "all added "+ns+"/last")
			})
			missing := 0
			for i := range n {
				if got := of(h.delivered(), fmt.Sprintf("%s/m-%d", ns, i)); got[len(got)-1] != fmt.Sprintf("all deleted %s/m-%d", ns, i) {
					missing++
				}
			}
			if missing > 0 {
				t.Errorf("%d of %d objects that were delivered are gone, and their deletes were not delivered", missing, n)
			}
		})
	}
}
