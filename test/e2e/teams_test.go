package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestIncludedRoutes: the routes of an included file see one of two namespaces, also in look-ups. A
// mistake in the file disables them in the next run, and their backlog waits until it is repaired.
func TestIncludedRoutes(t *testing.T) {
	// Guarantee: include-scope, include-mistakes
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	other := s.Namespace(t)
	ours, theirs := routertest.Use(t, s, routertest.ConfigMaps, ns), routertest.Use(t, s, routertest.ConfigMaps, other)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: [%s, %s]}}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
include: [{name: team, files: teams/*.yaml, namespaces: [%[1]s], sources: [maps], sinks: [out, hook]}]
routes: [{name: all, from: maps, to: out}]
`, ns, other, h.URL))
	routes := filepath.Join(filepath.Dir(file), "teams", "routes.yaml")
	must.Succeed(t, os.MkdirAll(filepath.Dir(routes), 0o700))
	const good = `define: {visible: 'list("maps").size()'}
routes:
  - {name: sees, from: maps, emit: '{"visible": visible}', to: out}
  - {name: owes, from: maps, to: hook, retry: {backoff: 10ms, max: 50ms}}
`
	must.Succeed(t, os.WriteFile(routes, []byte(good), 0o600))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	theirs.Make(routertest.ConfigMap("a", "1"))
	theirs.Make(routertest.ConfigMap("b", "1"))
	r.Expect(t, "all added "+other+"/a", "all added "+other+"/b")
	ours.Make(routertest.ConfigMap("a", "1"))
	r.Expect(t, "all added "+ns+"/a", "team/sees added "+ns+"/a")
	if out, _ := routertest.Control(t, file, "resume", "team/sees"); !strings.Contains(out, "not paused") {
		t.Errorf("router resume says\n%s", out)
	}
	r.Saved(t)
	if code := r.Stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, e := range r.Events() {
		if e.Route == "team/sees" && (!strings.HasPrefix(e.Subject, ns+"/") || string(e.Data) != `{"visible":1}`) {
			t.Errorf("a route of the team sees %s %s", e.Subject, e.Data)
		}
	}

	routertest.Exchange(t, routes, "routes: [{name: owes, from: maps, to: nowhere}]\n")
	h.answer(http.StatusOK)
	r = routertest.StartFile(t, file)
	r.Ready(t)
	if out, _ := routertest.Control(t, file, "status"); !strings.Contains(out, `includes/team:`) || !strings.Contains(out, `sink "nowhere" is unknown or not granted`) {
		t.Errorf("router status says\n%s", out)
	}
	ours.Make(routertest.ConfigMap("unseen", "1"))
	r.Expect(t, "all added "+ns+"/unseen")
	if h.count() != 0 {
		t.Error("a disabled route delivers")
	}
	routertest.Exchange(t, routes, good)
	routertest.Poll(t, "the backlog of the route", func() bool { return h.count() > 0 })
	if got := h.events(t); got[0].Subject != ns+"/a" {
		t.Errorf("the first delivery is about %s", got[0].Subject)
	}
}

// TestFilterCPU: the filters of a team take more CPU than a source may spend on them, at each
// change. Another route
// and all routes of the team get each change, conditions included, and the status tells why they
// are late.
func TestFilterCPU(t *testing.T) {
	// Guarantee: filter-cpu
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: [%s]}}
sinks: {out: {stdout: {}}}
include: [{name: team, files: teams/*.yaml, namespaces: [%[1]s], sources: [maps], sinks: [out]}]
routes: [{name: all, from: maps, to: out}]
`, ns))
	const names, many, costly = "abcd", 20, `lists.range(1000).all(a, lists.range(%d).all(b, b >= 0))`
	text, want := "routes:\n", []string(nil)
	for i := range many {
		text += fmt.Sprintf("  - {name: r%d, from: maps, filter: '"+costly+"', to: out}\n", i, 200+i)
	}
	text += fmt.Sprintf("  - {name: watch, from: maps, when: '"+costly+"', to: out}\n", 250)
	for _, name := range names {
		want = append(want, fmt.Sprintf("all added %s/%c", ns, name), fmt.Sprintf("team/watch entered %s/%c", ns, name))
		for i := range many {
			want = append(want, fmt.Sprintf("team/r%d added %s/%c", i, ns, name))
		}
	}
	routes := filepath.Join(filepath.Dir(file), "teams", "routes.yaml")
	must.Succeed(t, os.MkdirAll(filepath.Dir(routes), 0o700))
	must.Succeed(t, os.WriteFile(routes, []byte(text), 0o600))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	for _, name := range names {
		maps.Make(routertest.ConfigMap(string(name), "1"))
	}
	routertest.Poll(t, "the reason in the status", func() bool { // it stays for a minute
		out, _ := routertest.Control(t, file, "status")
		return strings.Contains(out, "late: the filters and keys of team take more CPU")
	})
	r.Expect(t, want...)
}
