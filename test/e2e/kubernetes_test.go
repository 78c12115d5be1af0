package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestWritesThatSetOffTheirRoute shows that a route gets the deltas of its own writes, and that a
// loop is paused after its limit of writes of an object, with the names of the route and the
// object. The route keeps its backlog, other routes of the sink go on, and after a repair the route
// goes on too.
func TestWritesThatSetOffTheirRoute(t *testing.T) {
	// Guarantee: kubernetes-limits
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	const config = `
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
sinks:
  out: {stdout: {}}
  cluster: {kubernetes: {maxPerObject: %[2]s, allow: [{resource: v1/configmaps, namespaces: %[1]s, verbs: merge}]}}
routes:
  - {name: all, from: maps, to: out}
  - name: circle
    from: maps
    filter: object.metadata.name == "a"
    emit: '{"merge": {"data": {"seen": %[3]s}}}'
    to: cluster
  - name: other
    from: maps
    filter: object.metadata.name == "b" && !has(object.data.seen)
    emit: '{"merge": {"data": {"seen": "yes"}}}'
    to: cluster
`
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(config, ns, "5/1h", "object.metadata.resourceVersion"))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "1"))
	var said string
	routertest.Poll(t, "the route to be paused", func() bool {
		said = r.Status(t)
		return strings.Contains(said, "routes/circle: paused")
	})
	if want := fmt.Sprintf(`route "circle" has written v1/configmaps %s/a 5 times within 1h (maxPerObject)`, ns); !strings.Contains(said, want) {
		t.Errorf("the status says %s, want %s", said, want)
	}
	maps.Make(routertest.ConfigMap("b", "1"))
	want := []string{"all added " + ns + "/a", "all added " + ns + "/b", "all updated " + ns + "/b"}
	for range 5 {
		want = append(want, "all updated "+ns+"/a")
	}
	r.Expect(t, want...)
	const delivered = `deltarouter_route_events_total{result="delivered",route="%s",sink="cluster"}`
	routertest.Poll(t, "the counts", func() bool {
		return r.Metric(t, fmt.Sprintf(delivered, "circle")) == 5 && r.Metric(t, fmt.Sprintf(delivered, "other")) == 1
	})
	if n := r.Metric(t, `deltarouter_route_queue_deltas{route="circle"}`); n != 1 {
		t.Errorf("it owes %v", n)
	}
	if log := r.Log(); !strings.Contains(log, "route paused; fix the cause") || strings.Contains(log, "dead letters") {
		t.Errorf("the log says %s", log)
	}

	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	head, _, _ := strings.Cut(string(text), "\nsources:")
	r.Reload(t, file, head+fmt.Sprintf(config, ns, "30/1m", `"mended"`), true)
	// Its backlog; the same write again changes nothing.
	r.Expect(t, append(want, "all updated "+ns+"/a")...)
	r.Ready(t)
	routertest.Poll(t, "nothing to be owed", func() bool { return r.Metric(t, `deltarouter_route_queue_deltas{route="circle"}`) == 0 })
	if _, said := r.Get(t, "/readyz"); strings.Contains(said, "routes/") {
		t.Errorf("/readyz says %s", said)
	}
}

// TestWritesToAClusterThatIsDown shows that a sink without its API server writes its pending events
// when the server is back, and that routes to other sinks do not wait.
func TestWritesToAClusterThatIsDown(t *testing.T) {
	// Guarantee: kubernetes-down
	t.Parallel()
	source, target := sandboxtest.Start(t), sandboxtest.Borrow(t)
	ns, there := source.Namespace(t), target.Namespace(t)
	r := routertest.Start(t, source.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
sinks:
  out: {stdout: {}}
  far: {kubernetes: {kubeconfig: %[3]q, allow: [{resource: v1/configmaps, namespaces: %[2]s, verbs: apply}]}}
routes:
  - {name: all, from: maps, to: out}
  - name: copy
    from: maps
    emit: '{"apply": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": object.metadata.name, "namespace": %[2]q}, "data": object.data}}'
    retry: {backoff: 100ms, max: 500ms}
    to: far
`, ns, there, target.Kubeconfig()))
	r.Ready(t)
	maps := routertest.Use(t, source, routertest.ConfigMaps, ns)
	const n = 60
	var want []string
	for i := range n {
		if i == n/3 {
			target.KillAPIServer(t)
		}
		name := fmt.Sprintf("m%d", i)
		maps.Make(routertest.ConfigMap(name, fmt.Sprint(i)))
		want = append(want, "all added "+ns+"/"+name)
	}
	r.Expect(t, want...)
	routertest.Poll(t, "the sink to be called unavailable", func() bool {
		_, said := r.Get(t, "/readyz")
		return strings.Contains(said, "sinks/far")
	})
	target.StartAPIServer(t)
	const events = `deltarouter_route_events_total{result="%s",route="copy",sink="far"}`
	routertest.Poll(t, "all to be written", func() bool { return r.Metric(t, fmt.Sprintf(events, "delivered")) == n })
	if rejected, retried := r.Metric(t, fmt.Sprintf(events, "rejected")), r.Metric(t, fmt.Sprintf(events, "retried")); rejected != 0 || retried == 0 {
		t.Errorf("%v were rejected, %v tried again", rejected, retried)
	}
	copies := routertest.Use(t, target, routertest.ConfigMaps, there)
	for i := range n {
		o, err := copies.Get(t.Context(), fmt.Sprintf("m%d", i), metav1.GetOptions{})
		must.Succeed(t, err)
		if data, _, _ := unstructured.NestedStringMap(o.Object, "data"); data["value"] != fmt.Sprint(i) {
			t.Errorf("m%d has %v", i, data)
		}
	}
	// Writes in progress when the API server was killed may have succeeded and are repeated.
	routertest.Poll(t, "the audit log", func() bool {
		made := target.Requests(t, func(q sandboxtest.Request) bool { return q.Namespace == there && q.Verb == "patch" && q.Code == 201 })
		return len(made) <= n && len(made) >= n-4
	})
	if left := r.Metric(t, `deltarouter_route_queue_deltas{route="copy"}`); left != 0 {
		t.Errorf("%v are owed still", left)
	}
}
