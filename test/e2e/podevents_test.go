package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestPodEvents shows that the router creates Events on its pod: about a rejected start, a rejected
// reload, a refused source, a paused route and dead letters, and that they contain no objects.
func TestPodEvents(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	pods := routertest.Use(t, s, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, ns)
	pod := pods.Make(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "router"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "router", "image": "router"}}},
	}})
	routertest.Setenv(t, "POD_NAMESPACE", ns)
	routertest.Setenv(t, "POD_NAME", "router")
	routertest.Setenv(t, "POD_UID", string(pod.GetUID()))
	created := func(reason string) (messages []string) {
		list, err := s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		must.Succeed(t, err)
		for _, e := range list.Items {
			if e.Object["reason"] == reason && e.Object["type"] == "Warning" {
				about, _, _ := unstructured.NestedString(e.Object, "involvedObject", "uid")
				if about != string(pod.GetUID()) {
					t.Errorf("the Event is about %q", about)
				}
				message, _, _ := unstructured.NestedString(e.Object, "message")
				messages = append(messages, message)
			}
		}
		return messages
	}
	expect := func(reason, want string) {
		t.Helper()
		routertest.Poll(t, "an Event "+reason, func() bool { return len(created(reason)) > 0 })
		for _, m := range created(reason) {
			if !strings.Contains(m, want) || strings.Contains(m, "canary") {
				t.Errorf("%s: %s\nwant %s", reason, m, want)
			}
		}
	}

	config := fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %[1]s}
  gizmos: {resource: example.net/v1/gizmos}
routes:
  - {name: lost, from: maps, emit: '{"t": timestamp(object.data.value)}', to: out}
  - {name: stops, from: maps, emit: '{"t": timestamp(object.data.value)}', onFailure: pause, to: out}
`, ns)
	file := routertest.Install(t, s.Kubeconfig(), "sinks: {out: {stdout: {}}}\n"+config)
	head, err := os.ReadFile(file)
	must.Succeed(t, err)
	text := strings.Replace(string(head), "{name: test,", "{name: test, events: true,", 1)
	write := func(text string) { must.Succeed(t, os.WriteFile(file, []byte(text), 0o600)) }

	write(text + "  - {name: wrong, from: absent, to: out}\n")
	rejected := routertest.Command("-config", file)
	rejected.Env = routertest.Environ(t)
	if out, err := rejected.CombinedOutput(); err == nil {
		t.Fatalf("the router starts: %s", out)
	}
	expect("ConfigRejected", `the router does not start: `+file)

	write(text)
	router := routertest.StartFile(t, file)
	router.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("m", "canary"))
	expect("SourceRefused", `source "gizmos" receives no changes: `)
	expect("RoutePaused", `route "stops" is paused`)
	expect("DeadLetters", `deltas of route "lost" that could not be delivered since the router started: 1; `)

	write(text + "  - {name: wrong, from: absent, to: out}\n")
	routertest.Poll(t, "an Event about the reload", func() bool {
		return slices.ContainsFunc(created("ConfigRejected"), func(m string) bool {
			return strings.Contains(m, "the configuration was not reloaded, and the former one continues: "+file)
		})
	})
}
