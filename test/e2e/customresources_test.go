package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// route returns a Route with a spec in YAML.
func route(name, spec string) string {
	return fmt.Sprintf("{apiVersion: deltarouter.io/v1alpha1, kind: Route, metadata: {name: %s}, spec: %s}\n", name, spec)
}

// conditionsOf returns the conditions of an object by type: status, reason, message and generation.
func conditionsOf(t *testing.T, client dynamic.ResourceInterface, name string) map[string][]string {
	t.Helper()
	object, err := client.Get(t.Context(), name, metav1.GetOptions{})
	must.Succeed(t, err)
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	must.Succeed(t, err)
	all := make(map[string][]string)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		text := func(key string) string { return fmt.Sprint(condition[key]) }
		all[text("type")] = []string{text("status"), text("reason"), text("message"), text("observedGeneration")}
	}
	return all
}

// awaitCondition waits until a condition of an object has a reason and a part of a message.
func awaitCondition(t *testing.T, client dynamic.ResourceInterface, name, condition, status, reason, message string) {
	t.Helper()
	var last map[string][]string
	defer func() {
		if t.Failed() {
			t.Logf("%s: last seen %v", name, last)
		}
	}()
	routertest.Poll(t, fmt.Sprintf("%s of %s to be %s: %s", condition, name, status, reason), func() bool {
		last = conditionsOf(t, client, name)
		c := last[condition]
		return len(c) == 4 && c[0] == status && c[1] == reason && strings.Contains(c[2], message)
	})
}

// TestRoutesOfObjects shows a route that is an object: it delivers what its namespace has, its
// mistakes leave the former version running and stand in its status, and it ends when it is
// deleted. A route of the file is not affected.
func TestRoutesOfObjects(t *testing.T) {
	// Guarantee: objects
	t.Parallel()
	s, _, _ := definedRoutes(t)
	ns, other := s.Namespace(t), s.Namespace(t)
	client := s.Dynamic().Resource(routeResource).Namespace(ns)
	s.Apply(t, other, route("ungranted", "{from: [maps], to: [out]}"))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sinks: {out: {stdout: {}}}
sources: {maps: {resource: v1/configmaps, namespaces: [%s, %s]}, hidden: {resource: v1/pods, namespaces: %[1]s}}
routes: [{name: file, from: maps, ops: [added], to: out}]
customResources: {routes: {namespaces: [%[1]s], sources: [maps], sinks: [out]}}
`, ns, other))
	r.Ready(t)
	maps, others := routertest.Use(t, s, routertest.ConfigMaps, ns), routertest.Use(t, s, routertest.ConfigMaps, other)
	s.Apply(t, ns, route("web", "{from: [maps], ops: [added], to: [out]}"))
	awaitCondition(t, client, "web", "Ready", "True", "Running", "")
	awaitCondition(t, client, "web", "Accepted", "True", "Valid", "")
	awaitCondition(t, client, "web", "Degraded", "False", "Healthy", "")
	others.Make(routertest.ConfigMap("theirs", "1"))
	maps.Make(routertest.ConfigMap("ours", "1"))
	r.Expect(t, "file added "+other+"/theirs", "file added "+ns+"/ours", ns+"/web added "+ns+"/ours")

	s.Apply(t, ns, route("web", "{from: [maps], ops: [added], filter: 'object.metadata.nam == \"x\"', to: [out]}"))
	awaitCondition(t, client, "web", "Accepted", "False", "Invalid", "of kubectl get route/web -n "+ns+" -o yaml: spec.filter: ")
	awaitCondition(t, client, "web", "Ready", "True", "FormerVersionRuns", "")
	maps.Make(routertest.ConfigMap("more", "1"))
	r.Expect(t, "file added "+ns+"/more", ns+"/web added "+ns+"/more")

	s.Apply(t, ns, route("denied", "{from: [hidden], to: [out]}"))
	awaitCondition(t, client, "denied", "Accepted", "False", "Invalid", `source "hidden" is unknown or not granted: `)
	awaitCondition(t, client, "denied", "Ready", "False", "NotAccepted", "")

	awaitCondition(t, s.Dynamic().Resource(routeResource).Namespace(other), "ungranted", "Accepted", "False", "NotGranted", "customResources.routes.namespaces")

	must.Succeed(t, client.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	routertest.Poll(t, "the route to end", func() bool { _, body := r.Get(t, "/metrics"); return !strings.Contains(body, ns+"/web") })
	maps.Make(routertest.ConfigMap("last", "1"))
	r.Expect(t, "file added "+ns+"/last")
	if code := r.Stop(t); code != 0 {
		t.Error("it exited with", code)
	}
}

// TestManyRoutesOfObjects shows that many routes come and go while a route of the file loses no
// delta, that each of them delivers, and that their status becomes true.
func TestManyRoutesOfObjects(t *testing.T) {
	// Guarantee: objects
	t.Parallel()
	many := effort.Rounds(100, 500, 500)
	s, _, _ := definedRoutes(t)
	ns := s.Namespace(t)
	client := s.Dynamic().Resource(routeResource).Namespace(ns)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: file, from: maps, ops: [updated], to: out}]
customResources: {routes: {namespaces: [%[1]s], sources: [maps], sinks: [out]}}
`, ns))
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("counter", "0"))
	maps.Make(routertest.ConfigMap("late", "0"))
	changes := 0
	count := func() {
		changes++
		maps.Change("counter", fmt.Sprintf(`{"data":{"value":"%d"}}`, changes))
	}
	for i := range many {
		s.Apply(t, ns, route(fmt.Sprint("r", i), `{from: [maps], filter: 'object.metadata.name == "late"', ops: [updated], emit: '{"n": object.metadata.name}', to: [out]}`))
		if i%10 == 0 {
			count()
		}
	}
	routertest.Poll(t, "all routes to run", func() bool { return ready(t, client) == many })
	maps.Change("late", `{"data":{"value":"1"}}`)
	var want []string
	for i := range many {
		want = append(want, fmt.Sprintf("%s/r%d updated %s/late", ns, i, ns))
	}
	r.Expect(t, append(want, "file updated "+ns+"/late")...)
	began := time.Now()
	s.Apply(t, ns, route("last", `{from: [maps], filter: 'object.metadata.name == "late"', ops: [added], existing: deliver, to: [out]}`))
	r.Expect(t, ns+"/last added "+ns+"/late")
	t.Logf("an applied route delivered after %s, beside %d others", time.Since(began), many)
	must.Succeed(t, client.Delete(t.Context(), "last", metav1.DeleteOptions{}))
	for i := range many {
		must.Succeed(t, client.Delete(t.Context(), fmt.Sprint("r", i), metav1.DeleteOptions{}))
		if i%10 == 0 {
			count()
		}
	}
	routertest.Poll(t, "all routes to end", func() bool { _, body := r.Get(t, "/metrics"); return !strings.Contains(body, `route="`+ns+"/") })
	r.Wait(t, "each change of the counter at the route of the file", func(events []routertest.Event) bool {
		delivered := 0
		for _, e := range events {
			if e.String() == "file updated "+ns+"/counter" {
				delivered++
			}
		}
		return delivered == changes
	})
}

// ready returns the number of objects with the condition Ready.
func ready(t *testing.T, client dynamic.ResourceInterface) (n int) {
	t.Helper()
	list, err := client.List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	for _, object := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, c := range conditions {
			if condition, _ := c.(map[string]any); condition["type"] == "Ready" && condition["status"] == "True" {
				n++
			}
		}
	}
	return n
}

// TestObjectsWithoutAPIServer shows that a router that starts while the API server is down runs the
// routes that were objects at the end of its last run: it delivers their backlog, and no delta
// passes them by when the API server is back. A mistake does not end the former version of a route
// either.
func TestObjectsWithoutAPIServer(t *testing.T) {
	// Guarantee: objects-offline
	t.Parallel()
	s := sandboxtest.New(t, sandboxtest.Options{})
	printed, err := routertest.Command("crds").Output()
	must.Succeed(t, err)
	s.Apply(t, "", string(printed))
	ns := s.Namespace(t)
	client := s.Dynamic().Resource(routeResource).Namespace(ns)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}, hook: {webhook: {url: %q}}}
customResources: {routes: {namespaces: ["*"], sources: [maps], sinks: [hook]}, clusterRoutes: {namespaces: ["*"], sources: [maps], sinks: [out]}}
`, ns, h.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	const spec = "{from: [maps], ops: [added], retry: {backoff: 10ms, max: 50ms}, to: [hook]}"
	s.Apply(t, ns, route("web", spec))
	s.Apply(t, "", "{apiVersion: deltarouter.io/v1alpha1, kind: ClusterRoute, metadata: {name: all}, spec: {from: [maps], ops: [added], to: [out]}}")
	awaitCondition(t, client, "web", "Ready", "True", "Running", "")
	awaitCondition(t, s.Dynamic().Resource(clusterRouteResource), "all", "Ready", "True", "Running", "")
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("first", "1"))
	r.Expect(t, "clusterRoutes/all added "+ns+"/first")
	awaitCondition(t, client, "web", "Degraded", "True", "SinkUnavailable", "hook")
	s.Apply(t, ns, route("web", strings.Replace(spec, "maps", "mops", 1)))
	awaitCondition(t, client, "web", "Ready", "True", "FormerVersionRuns", "")
	if code := r.Stop(t); code != 0 {
		t.Error("it exited with", code)
	}
	s.StopAPIServer(t)
	h.answer(http.StatusOK)
	r = routertest.StartFile(t, file)
	routertest.Poll(t, "the backlog of the route to be delivered", func() bool { return h.count() == 1 })
	s.StartAPIServer(t)
	maps.Make(routertest.ConfigMap("second", "1"))
	r.Expect(t, "clusterRoutes/all added "+ns+"/second")
	routertest.Poll(t, "the delta at the route", func() bool { return h.count() == 2 })
	s.Apply(t, ns, route("web", spec))
	awaitCondition(t, client, "web", "Accepted", "True", "Valid", "")
}
