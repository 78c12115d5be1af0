package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestTwoDeletesAfterAKill: an object that was delivered is deleted, and made again, and none of that is delivered before the router is
// killed. While it is down the new one is deleted too. The delete of the first must be delivered, also to a route that folds.
func TestTwoDeletesAfterAKill(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
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
	maps.Make(routertest.ConfigMap("last", "1"))
	routertest.Poll(t, "the last", func() bool {
		return strings.Contains(strings.Join(routertest.Summary(h.delivered()), ","), "all added "+ns+"/last")
	})
	deleted := make(map[string]bool)
	take(h.delivered(), make(map[string]string), deleted)
	for i, uid := range first {
		if !deleted[uid] {
			t.Errorf("m-%d: the delete of %s, which was delivered, was not; got %q", i, uid, routertest.Of(h.delivered(), fmt.Sprintf("%s/m-%d", ns, i)))
		}
	}
}
