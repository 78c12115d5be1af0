package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestWhen runs routes with conditions on a real API server, with a SIGKILL, changes while the
// router is down, a reload that changes a condition, and one that removes a route for a while. Each
// report is made once, and each end is reported.
func TestWhen(t *testing.T) {
	// Guarantee: conditions-late, conditions-reconfigured
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	set := func(name, value string) { m.Change(name, fmt.Sprintf(`{"data":{"value":%q}}`, value)) }
	config := func(routes ...string) string {
		return fmt.Sprintf("sources: {maps: {resource: v1/configmaps, namespaces: %s}}\nsinks: {out: {stdout: {}}}\nroutes:\n%s", ns, strings.Join(routes, ""))
	}
	const (
		bad   = "  - {name: bad, from: maps, when: object.data.value == \"bad\", existing: deliver, to: out}\n"
		lasts = "  - {name: lasts, from: maps, when: object.data.value == \"bad\", for: 8s, existing: skip, to: out}\n"
		gone  = "  - {name: gone, from: maps, ops: deleted, for: 1s, to: out}\n"
		waits = "  - {name: waits, from: maps, ops: deleted, for: 1h, to: out}\n"
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
	if pending, active := r.Metric(t, `deltarouter_route_pending_objects{route="lasts"}`), r.Metric(t, `deltarouter_route_active_objects{route="bad"}`); pending != 0 || active != 2 {
		t.Errorf("pending %v, active %v", pending, active)
	}
	set("c", "bad")
	r.Expect(t, "bad entered "+n+"a", "bad entered "+n+"b", "lasts entered "+n+"b", "bad entered "+n+"c")
	r.Saved(t)
	r.Kill(t)

	// While the router is down, one condition ends, one object is deleted, one condition goes on,
	// and one begins.
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
	if pending := r.Metric(t, `deltarouter_route_pending_objects{route="waits"}`); pending != 1 {
		t.Errorf("%v are pending", pending)
	}
	r.Saved(t)

	// A reload with another condition reports the differences. Then the route is removed, and its
	// return reports the changes meanwhile.
	reload := func(more []string, routes ...string) {
		t.Helper()
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
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

// TestWatches shows that a change of an object makes its dependents pass their route again, in
// their present state, also after a reload and after a kill. Failures of the expression are
// counted, and logged once.
func TestWatches(t *testing.T) {
	// Guarantee: watches
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	m.Make(routertest.ConfigMap("home", "closed", "role=home"))
	for _, child := range []string{"a", "b"} {
		m.Make(routertest.ConfigMap(child, "home", "role=child"))
	}
	m.Make(routertest.ConfigMap("c", "elsewhere", "role=child"))
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  homes: {resource: v1/configmaps, namespaces: %s, labelSelector: role=home}
  children: {resource: v1/configmaps, namespaces: %[1]s, labelSelector: role=child, indexes: {byHome: object.data.value}}
sinks: {out: {stdout: {}}}
define: {home: 'get("homes", object.metadata.namespace, object.data.value)'}
routes:
  - name: open
    from: children
    ops: [added]
    filter: home.data.value == "open"
    watches: {homes: 'lookup("children.byHome", object.data.name)'}
    to: out
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	m.Change("home", `{"data": {"value": "open"}}`)
	r.WaitLog(t, "what cannot be said", func(log string) bool { return strings.Contains(log, "the expression of watches failed") })
	m.Change("home", `{"data": {"value": "open", "more": "x"}}`)
	routertest.Poll(t, "the count", func() bool {
		return r.Metric(t, `deltarouter_route_errors_total{kind="absent",route="open"}`) == 2
	})
	if n := strings.Count(r.Log(), "the expression of watches failed"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	r.Reload(t, file, strings.Replace(string(text), "object.data.name", "object.metadata.name", 1), true)
	n := ns + "/"
	want := []string{"open sync " + n + "a", "open sync " + n + "b"}
	m.Change("home", `{"data": {"value": "open", "more": "y"}}`)
	r.Expect(t, want...)
	m.Change("c", `{"data": {"value": "home"}}`)
	m.Change("home", `{"data": {"value": "shut"}}`)
	m.Change("home", `{"data": {"value": "open"}}`)
	r.Wait(t, "all children", func(events []routertest.Event) bool { return len(routertest.Of(events, n+"c")) > 0 })
	m.Change("a", `{"data": {"value": "nowhere"}}`)
	// after a, in the same watch: between watches there is no order
	m.Make(routertest.ConfigMap("d", "home", "role=child"))
	r.Wait(t, "the last child", func(events []routertest.Event) bool { return len(routertest.Of(events, n+"d")) > 0 })
	r.Saved(t)
	r.Kill(t)
	m.Change("home", `{"data": {"value": "open", "more": "z"}}`)
	r = routertest.StartFile(t, file)
	r.Wait(t, "what depends on the home", func(events []routertest.Event) bool {
		return len(routertest.Of(events, n+"b")) > 0 && len(routertest.Of(events, n+"c")) > 0
	})
	if got := routertest.Of(r.Events(), n+"a"); len(got) > 0 {
		t.Errorf("what does not depend on it any more: %q", got)
	}
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
