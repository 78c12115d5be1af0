package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestWhen: routes with conditions on a real API server, across a SIGKILL, what happens while the router is down, a reload that changes a
// condition, and one that takes a route out for a while. What was told is told once, and its end is told.
func TestWhen(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	set := func(name, value string) { m.Change(name, fmt.Sprintf(`{"data":{"value":%q}}`, value)) }
	config := func(routes ...string) string {
		return fmt.Sprintf("sources: {maps: {resource: v1/configmaps, namespaces: %s}}\nsinks: {out: {stdout: {}}}\nroutes:\n%s", ns, strings.Join(routes, ""))
	}
	const (
		bad   = "  - {name: bad, from: maps, when: object.data.value == \"bad\", existing: deliver, to: out}\n"
		lasts = "  - {name: lasts, from: maps, when: object.data.value == \"bad\", for: 8s, to: out}\n"
		gone  = "  - {name: gone, from: maps, on: deleted, for: 1s, to: out}\n"
		waits = "  - {name: waits, from: maps, on: deleted, for: 1h, to: out}\n"
		all   = "  - {name: all, from: maps, to: out}\n"
	)
	for _, name := range []string{"a", "b", "c", "d"} {
		m.Make(routertest.ConfigMap(name, "good"))
	}
	set("a", "bad")
	n := ns + "/"
	file := routertest.InstallAPI(t, s.Kubeconfig(), config(bad, lasts, gone, waits))
	r := routertest.StartFile(t, file)
	r.Expect(t, "bad entered "+n+"a")
	r.Ready(t)
	set("b", "bad")
	r.Expect(t, "bad entered "+n+"a", "bad entered "+n+"b", "lasts entered "+n+"b")
	if pending, active := r.Metric(t, `deltarouter_route_pending{route="lasts"}`), r.Metric(t, `deltarouter_route_active{route="bad"}`); pending != 0 || active != 2 {
		t.Errorf("pending %v, active %v", pending, active)
	}
	set("c", "bad")
	r.Expect(t, "bad entered "+n+"a", "bad entered "+n+"b", "lasts entered "+n+"b", "bad entered "+n+"c")
	r.Saved(t)
	r.Kill(t)

	// While it is down one ends, one is deleted, one goes on, and one begins.
	set("a", "good")
	m.Remove("b")
	set("d", "bad")
	r = routertest.StartFile(t, file)
	want := []string{
		"bad left " + n + "a", "bad left " + n + "b", "lasts left " + n + "b", "bad entered " + n + "d", "lasts entered " + n + "c", "lasts entered " + n + "d",
		"gone deleted " + n + "b",
	}
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
	if out, code := routertest.Control(t, file, "get", "-active", "waits"); code != 0 || !regexp.MustCompile(`maps +`+ns+` +b +gone +\d+[sm] +in \d+m `).MatchString(out) {
		t.Errorf("exit code %d, %s", code, out)
	}
	if pending := r.Metric(t, `deltarouter_route_pending{route="waits"}`); pending != 1 {
		t.Errorf("%v are pending", pending)
	}
	r.Saved(t)

	// Another condition, of which the difference is told; then it is taken out, and what happens meanwhile is told when it returns.
	reload := func(more []string, routes ...string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "sources:")
		r.Reload(t, file, head+config(routes...), true)
		want = append(want, more...)
		routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
		r.Saved(t)
	}
	reload([]string{"bad entered " + n + "a", "bad left " + n + "c"}, strings.Replace(bad, `== "bad"`, `!= "other" && object.metadata.name != "c"`, 1))
	reload(nil, all)
	set("d", "other")
	m.Remove("a")
	want = append(want, "all updated "+n+"d", "all deleted "+n+"a")
	r.Expect(t, want...)
	reload([]string{"bad left " + n + "d", "bad left " + n + "a", "bad entered " + n + "c"}, bad)
}
