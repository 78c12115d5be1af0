package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestReloadedRoutes: what a new route with existing: deliver gets, what a removed one owes when it returns, and what cannot change.
func TestReloadedRoutes(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("before", "1"))
	h := newHook(t)
	h.answer(503)
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	config := func(state, routes string) string {
		return fmt.Sprintf(`version: 1
cluster: {name: test, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0"}
sources: {maps: {resource: v1/configmaps, namespaces: %s}, again: {resource: v1/configmaps, namespaces: %[3]s, labelSelector: "a!=b"}}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
routes:
  - {name: all, from: maps, to: out}
`, s.Kubeconfig(), filepath.Join(dir, state), ns, h.URL) + routes
	}
	const owing = "  - {name: owing, from: maps, to: hook, retry: {backoff: 10ms, max: 50ms}}\n"
	if err := os.WriteFile(file, []byte(config("state", owing)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := routertest.StartFile(t, file)
	r.Ready(t)
	m.Make(routertest.ConfigMap("owed", "1"))
	r.Expect(t, "all added "+ns+"/owed")

	r.Reload(t, file, config("state", "  - {name: late, from: maps, existing: deliver, to: out}\n"), true)
	r.Expect(t, "late added "+ns+"/before", "late added "+ns+"/owed")
	h.answer(200)
	r.Reload(t, file, config("elsewhere", owing), true)
	if _, body := r.Get(t, "/readyz"); !strings.Contains(body, "state: cannot change while the router runs") {
		t.Errorf("/readyz says %s", body)
	}
	if h.count() != 0 {
		t.Error("a route that is removed delivers")
	}
	r.Reload(t, file, config("state", owing), true)
	routertest.Poll(t, "what was owed", func() bool { return h.count() == 1 })
	if !strings.Contains(h.got[0], ns+"/owed") {
		t.Errorf("got %s", h.got[0])
	}
}
