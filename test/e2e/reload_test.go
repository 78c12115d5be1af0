package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestReloadedRoutes checks the deltas of a new route with existing: deliver, the backlog of a
// removed route that returns, and the settings that cannot change.
func TestReloadedRoutes(t *testing.T) {
	// Guarantee: removed-route, new-route
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
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
	must.Succeed(t, os.WriteFile(file, []byte(config("state", owing)), 0o600))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	m.Make(routertest.ConfigMap("owed", "1"))
	r.Expect(t, "all added "+ns+"/owed")

	r.Reload(t, file, config("state", "  - {name: late, from: maps, existing: deliver, to: out}\n"), true)
	r.Expect(t, "late added "+ns+"/before", "late added "+ns+"/owed")
	h.answer(200)
	r.Reload(t, file, config("elsewhere", owing), true)
	if _, body := r.Get(t, "/readyz"); !strings.Contains(body, "[-]config: not ok") || !strings.Contains(r.Log(), "state: cannot change while the router runs") {
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

// TestResync shows that every object is repeated as sync to the routes that want it, or to the
// named route whatever its ops are, each time with new ids.
func TestResync(t *testing.T) {
	// Guarantee: resync
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("a", "1"))
	m.Make(routertest.ConfigMap("b", "2"))
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
  secrets: {resource: v1/secrets, namespaces: %[1]s}
  gizmos: {resource: example.com/v1/nosuchthings, namespaces: %[1]s}
sinks: {out: {stdout: {}}}
routes:
  - {name: syncs, from: [maps, secrets], ops: [sync], to: out}
  - {name: changes, from: maps, filter: object.data.value == "2", to: out}
  - {name: waits, from: gizmos, to: out}
  - {name: level, from: maps, when: object.data.value == "2", ops: entered, existing: deliver, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Expect(t, "level entered "+ns+"/b")
	ids := make(map[string]bool)
	rounds := 0
	check := func(args string, code int, contains string, want ...string) {
		t.Helper()
		before := len(r.Events())
		out, got := routertest.Control(t, file, append([]string{"resync"}, strings.Fields(args)...)...)
		if got != code || !regexp.MustCompile(contains).MatchString(out) {
			t.Errorf("router resync %s: exit code %d\n%s\nwant %d and %s", args, got, out, code, contains)
		}
		r.Wait(t, "what is put through", func(events []routertest.Event) bool { return len(events) >= before+len(want) })
		routertest.Exactly(t, routertest.Summary(r.Events()[before:]), want)
		for _, e := range r.Events()[before:] {
			if rounds++; ids[e.ID] {
				t.Errorf("id %s of %s was there before", e.ID, e)
			}
			ids[e.ID] = true
		}
	}
	n := ns + "/"
	for range 2 {
		check("-source maps", 0, `^source maps: 2 objects put through, 2 of them to a route\n$`, "syncs sync "+n+"a", "syncs sync "+n+"b")
		check("", 0, `source maps: 2 objects.*\nsource secrets: 0 objects`, "syncs sync "+n+"a", "syncs sync "+n+"b")
		check("-route changes", 0, `2 objects put through, 1 of them to route changes`, "changes sync "+n+"b")
		check("-route changes -dry-run", 0, `2 objects would be put through, 1 of them would go to route changes`)
		check("-route level -dry-run", 0, `it would repeat notifications\nsource maps: 2 objects would be put through, 1 of them`)
		check("-route level", 1, `would repeat 1 notification. Go on\? .*nothing was done`)
		check("-route level -yes", 0, `2 objects put through, \d of them to route level`, "level entered "+n+"b")
		// the resource does not exist
		check("-relist", 1, `source gizmos: not listed\n[\s\S]*source maps: 2 objects listed, 0 deltas`)
		check("-relist -source maps", 0, `^source maps: 2 objects listed, 0 deltas`)
		check("-relist -route changes", 0, `^source maps: 2 objects listed, 0 deltas`)
		check("-source mops", 1, `there is no source "mops"; did you mean "maps"\?`)
		check("-route change", 1, `there is no route "change"; did you mean "changes"\?`)
		check("-route changes -source secrets", 1, `route "changes" receives no deltas of source "secrets"`)
		check("-source gizmos", 1, `no route .*has sync in its ops: name a route`)
		check("-route waits", 0, `source gizmos: 0 objects[\s\S]*source gizmos is not complete yet: .*does not exist`)
		if code := r.Stop(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		r = routertest.StartFile(t, file)
		r.Ready(t)
	}
	if rounds != 2*6 {
		t.Errorf("%d events, want 12", rounds)
	}
}

// TestAskedWhileStopping shows that a stopping router refuses requests with the reason.
func TestAskedWhileStopping(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	answer := make(chan struct{})
	var n atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-answer; n.Add(1) }))
	t.Cleanup(h.Close)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q, timeout: 10m}}}
routes: [{name: owing, from: maps, ops: [added, sync], to: hook, retry: {backoff: 10ms, max: 50ms}}]
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	routertest.Poll(t, "the delta", func() bool { return r.Metric(t, "deltarouter_route_queue_deltas") == 1 })
	must.Succeed(t, r.Process().Signal(syscall.SIGTERM))
	r.WaitLog(t, "the stop", func(log string) bool { return strings.Contains(log, `"msg":"stopping"`) })
	for _, args := range [][]string{{"resync"}, {"resync", "-relist"}} {
		out, code := routertest.Control(t, file, args...)
		if code != 1 || !strings.Contains(out, "the router is starting or stopping") {
			t.Errorf("router %q: exit code %d, %s", args, code, out)
		}
	}
	if status, body := post(t, filepath.Join(filepath.Dir(file), "api.sock"), "/api/v1/reload"); status != http.StatusUnprocessableEntity || !strings.Contains(body, "the router is stopping") {
		t.Errorf("a reload: %d %s", status, body)
	}
	close(answer)
	if code := r.Ended(t); code != 0 || n.Load() != 1 {
		t.Errorf("exit code %d, %d at the webhook", code, n.Load())
	}
}

// post sends a request to the API on a socket.
func post(t *testing.T, socket, path string) (status int, body string) {
	t.Helper()
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Post("http://localhost"+path, "application/json", nil)
	must.Succeed(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(text)
}
