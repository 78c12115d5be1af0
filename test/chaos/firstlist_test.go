package chaos

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestEndsBeforeTheFirstList starts with a router that never reached the API server, so its state
// folder knows the route and the watch but no object. The next router lists for the first time; the
// objects must be new to the route all the same.
func TestEndsBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	proxy := s.Proxy(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	file := routertest.Install(t, proxy.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: maps, existing: deliver, to: out}]
`, ns))
	proxy.Refuse()
	r := routertest.StartFile(t, file)
	r.Saved(t)
	r.Kill(t)
	proxy.Unblock()
	r = routertest.StartFile(t, file)
	r.Expect(t, "all added "+ns+"/a")
	r.Saved(t)
	r.Kill(t)
	r = routertest.StartFile(t, file)
	r.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("b", "1"))
	routertest.Exactly(t, routertest.Summary(r.Expect(t, "all added "+ns+"/b")), []string{"all added " + ns + "/b"})
}
