package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestRequeue: when an object changes that others are filtered by, those go through their route once more, each as it is by then, also after
// a reload, and after the router was killed. What the expression cannot say is counted, and logged once.
func TestRequeue(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
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
    on: [added]
    filter: home.data.value == "open"
    requeue: {homes: 'lookup("children.byHome", object.data.name)'}
    to: out
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	m.Change("home", `{"data": {"value": "open"}}`)
	r.WaitLog(t, "what cannot be said", func(log string) bool { return strings.Contains(log, "requeue does not say what depends on an object") })
	m.Change("home", `{"data": {"value": "open", "more": "x"}}`)
	routertest.Poll(t, "the count", func() bool {
		return r.Metric(t, `deltarouter_route_errors_total{kind="absent",route="open"}`) == 2
	})
	if n := strings.Count(r.Log(), "requeue does not say"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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
	m.Make(routertest.ConfigMap("d", "home", "role=child")) // after a, in the same watch: between watches there is no order
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
