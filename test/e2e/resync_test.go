package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestResync: everything comes once more, as sync, to the routes that want it, or to the one that is named, whatever it wants; each time
// with ids that a receiver has not seen.
func TestResync(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
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
  - {name: syncs, from: [maps, secrets], on: [sync], to: out}
  - {name: changes, from: maps, filter: object.data.value == "2", to: out}
  - {name: waits, from: gizmos, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
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
		check("-source maps", 0, `^source maps: 2 objects put through, 2 go to a route\n$`, "syncs sync "+n+"a", "syncs sync "+n+"b")
		check("", 0, `source maps: 2 objects.*\nsource secrets: 0 objects`, "syncs sync "+n+"a", "syncs sync "+n+"b")
		check("-route changes", 0, `2 objects put through, 1 go to route changes`, "changes sync "+n+"b")
		check("-relist", 1, `source gizmos: not listed\n[\s\S]*source maps: 2 objects listed, 0 deltas`) // the resource does not exist
		check("-relist -source maps", 0, `^source maps: 2 objects listed, 0 deltas`)
		check("-relist -route changes", 0, `^source maps: 2 objects listed, 0 deltas`)
		check("-source mops", 1, `there is no source "mops"; did you mean "maps"\?`)
		check("-route change", 1, `there is no route "change"; did you mean "changes"\?`)
		check("-route changes -source secrets", 1, `route "changes" does not get anything from source "secrets"`)
		check("-source gizmos", 1, `no route .*has sync in its on: name a route`)
		check("-route waits", 0, `source gizmos: 0 objects[\s\S]*source gizmos is not complete yet: .*does not exist`)
		if code := r.Stop(t); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		r = routertest.StartFile(t, file)
		r.Ready(t)
	}
	if rounds != 2*5 {
		t.Errorf("%d events, want 10", rounds)
	}
}

// TestAskedWhileStopping: what is asked of a router that is stopping is refused with the reason.
func TestAskedWhileStopping(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {hook: {webhook: {url: %q}}}
routes: [{name: owing, from: maps, on: [added, sync], to: hook, retry: {backoff: 10ms, max: 50ms}}]
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	routertest.Poll(t, "the delta", func() bool { return r.Metric(t, "deltarouter_queue_depth") == 1 })
	if err := r.Process().Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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
	h.answer(http.StatusOK)
	if code := r.Ended(t); code != 0 || h.count() != 1 {
		t.Errorf("exit code %d, %d at the webhook", code, h.count())
	}
}

// post asks the API on a socket.
func post(t *testing.T, socket, path string) (status int, body string) {
	t.Helper()
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Post("http://localhost"+path, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
