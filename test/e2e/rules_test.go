package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// rule reads a rule of examples/rules without its version, with its sink on standard output and
// with replaced texts: old, new, old, new, …
func rule(t *testing.T, name string, exchange ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "rules", name+".yaml"))
	must.Succeed(t, err)
	config := strings.Replace(string(text), "version: 1\n", "", 1)
	config = regexp.MustCompile(`\{webhook: .*\}\n`).ReplaceAllString(config, "{stdout: {}}\n")
	for i := 0; i < len(exchange); i += 2 {
		if !strings.Contains(config, exchange[i]) {
			t.Fatalf("%s has no %q", name, exchange[i])
		}
		config = strings.ReplaceAll(config, exchange[i], exchange[i+1])
	}
	return config
}

// told is the data of the rules' events.
type told struct {
	Action, Text string
	Since        time.Time
	Late, Repeat bool
	Why          []string
}

func toldBy(t *testing.T, e routertest.Event) (data told) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatalf("%s: %v", e, err)
	}
	return data
}

// notEarly checks that a condition was reported after it had held for as long as its rule demands.
func notEarly(t *testing.T, e routertest.Event, after time.Duration) {
	t.Helper()
	if data := toldBy(t, e); e.Time.Sub(data.Since) < after || data.Since.IsZero() {
		t.Errorf("%s came at %s, %s after it began, which is before %s", e, e.Time, e.Time.Sub(data.Since), after)
	}
}

var (
	nodes       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
)

func object(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func podOf(name string) *unstructured.Unstructured {
	return object("v1", "Pod", name, map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app"}}})
}

// TestRuleNodeNotReady makes a node not ready for longer than the rule demands, while the router is
// down after a SIGKILL. It must be reported late and once, and resolved when the node is ready. In
// the first life for is an hour; in the second it is a second, which is over by then: a second
// route reports so.
func TestRuleNodeNotReady(t *testing.T) {
	// Guarantee: conditions-late
	t.Parallel()
	s := sandboxtest.Start(t)
	name := s.Namespace(t) + "-node"
	m := routertest.Use(t, s, nodes, "")
	ready := func(status string) {
		m.Change(name, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status), "status")
	}
	m.Make(object("v1", "Node", name, map[string]any{}))
	defer m.Remove(name)
	ready("True")
	source := []string{"{resource: v1/nodes}", "{resource: v1/nodes, fieldSelector: metadata.name=" + name + "}"}
	short := rule(t, "node-not-ready", append(source, "for: 2m", "for: 1s")...)
	_, route, _ := strings.Cut(short, "routes:\n")
	file := routertest.InstallAPI(t, s.Kubeconfig(), rule(t, "node-not-ready", append(source, "for: 2m", "for: 1h")...)+
		strings.Replace(route, "name: node-not-ready", "name: probe", 1))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	ready("Unknown")
	first := r.Expect(t, "probe entered "+name)[0]
	notEarly(t, first, time.Second)
	if data := toldBy(t, first); data.Late || data.Action != "trigger" {
		t.Errorf("got %+v", data)
	}
	if pending := r.Metric(t, `deltarouter_route_pending_objects{route="node-not-ready"}`); pending != 1 {
		t.Errorf("%v are pending", pending)
	}
	for route, state := range map[string]string{"node-not-ready": `"state":"pending","reported":false,"due":"`, "probe": `"state":"entered","reported":true,"remind":"`} {
		out, code := routertest.Control(t, file, "get", "-active", route, "-o", "json")
		if code != 0 || !strings.Contains(out, state) || !strings.Contains(out, `"source":"nodes","name":"`+name) {
			t.Errorf("exit code %d, %s", code, out)
		}
	}
	if out, code := routertest.Control(t, file, "get", "-active", "prob"); code != 1 || !strings.Contains(out, `there is no route "prob"; did you mean "probe"?`) {
		t.Errorf("exit code %d, %s", code, out)
	}
	r.Saved(t)
	r.Kill(t)
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, []byte(strings.Replace(string(text), "for: 1h", "for: 1s", 1)), 0o600))
	r = routertest.StartFile(t, file)
	late := r.Expect(t, "node-not-ready entered "+name)[0]
	notEarly(t, late, time.Second)
	if data := toldBy(t, late); !data.Late || data.Repeat || data.Since.After(first.Time) {
		t.Errorf("got %+v", data)
	}
	ready("True")
	events := r.Expect(t, "node-not-ready left "+name, "probe left "+name)
	routertest.Exactly(t, routertest.Summary(events), []string{"node-not-ready entered " + name, "node-not-ready left " + name, "probe left " + name})
	if data := toldBy(t, events[len(events)-1]); data.Action != "resolve" {
		t.Errorf("got %+v", data)
	}
}

// TestRulePodPending shows that a pending pod is reported with its reason and not early, and that a
// pod that starts in time is not reported.
func TestRulePodPending(t *testing.T) {
	// Guarantee: entered
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	const after = 4 * time.Second
	m := routertest.Use(t, s, routertest.Pods, ns)
	r := routertest.Start(t, s.Kubeconfig(), rule(t, "pod-pending", "for: 5m", "for: "+after.String(), "{resource: v1/pods}", "{resource: v1/pods, namespaces: "+ns+"}"))
	r.Ready(t)
	made := time.Now()
	m.Make(podOf("runs"))
	m.Change("runs", `{"status":{"phase":"Running"}}`, "status")
	inTime := time.Since(made) < after/2
	m.Make(podOf("waits"))
	m.Change("waits", `{"status":{"conditions":[{"type":"PodScheduled","status":"False","message":"0/3 nodes are available"}]}}`, "status")
	// It began later than the other one, so it is due later.
	events := r.Expect(t, "pod-pending entered "+ns+"/waits")
	for _, e := range events {
		notEarly(t, e, after)
	}
	if runs := routertest.Of(events, ns+"/runs"); len(runs) > 0 && inTime {
		t.Errorf("got %q of a pod that runs", runs)
	}
	if data := toldBy(t, routertest.About(events, ns+"/waits")[0]); len(data.Why) != 1 || data.Why[0] != "0/3 nodes are available" {
		t.Errorf("got %+v", data)
	}
}

// TestRuleCrashLoop shows that each owner has one report of a crash loop.
func TestRuleCrashLoop(t *testing.T) {
	// Guarantee: limit
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	config := rule(t, "crash-loop", "v1/pods}", "v1/pods, namespaces: "+ns+"}")
	r := routertest.Start(t, s.Kubeconfig(), config)
	r.Ready(t)
	owner := object("apps/v1", "ReplicaSet", "web", map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app"}}},
		},
	})
	owner = routertest.Use(t, s, replicaSets, ns).Make(owner)
	m := routertest.Use(t, s, routertest.Pods, ns)
	crash := func(name, state string) {
		m.Change(name, fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"app","image":"app","imageID":"","ready":false,"restartCount":3,"state":%s}]}}`, state), "status")
	}
	const waiting, running = `{"waiting":{"reason":"CrashLoopBackOff"}}`, `{"running":{}}`
	for _, name := range []string{"web-1", "web-2", "alone"} {
		p := podOf(name)
		if name != "alone" {
			p.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
				"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": string(owner.GetUID()), "controller": true,
			}}
		}
		m.Make(p)
		crash(name, waiting)
		crash(name, running)
		crash(name, waiting)
	}
	want := []string{"crash-loop entered " + ns + "/web-1", "crash-loop entered " + ns + "/alone"}
	r.Expect(t, want...)
	suppressed := `deltarouter_route_deltas_total{result="suppressed",route="crash-loop"}`
	routertest.Poll(t, "what is not told to be counted", func() bool { return r.Metric(t, suppressed) == 4 })
	events := r.Events()
	routertest.Exactly(t, routertest.Summary(events), want)
	for subject, text := range map[string]string{"/web-1": "/web crashes, last in web-1; not told: 0", "/alone": "/alone crashes, last in alone; not told: 0"} {
		if got := toldBy(t, routertest.About(events, ns+subject)[0]).Text; got != ns+text {
			t.Errorf("got %q, want %q", got, ns+text)
		}
	}
}

// TestCheckAtStart shows that a condition that became true by time alone while the router was down
// is reported at its start, whatever the interval of reevaluation.
func TestCheckAtStart(t *testing.T) {
	// Guarantee: reevaluate
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes:
  - {name: past, from: maps, when: now > timestamp(object.data.value), reevaluate: 1h, to: out}
  - {name: all, from: maps, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	past, soon := time.Now().Add(-time.Hour), time.Now().Add(10*time.Second)
	m.Make(routertest.ConfigMap("soon", soon.Format(time.RFC3339)))
	m.Make(routertest.ConfigMap("renewed", soon.Format(time.RFC3339)))
	m.Make(routertest.ConfigMap("past", past.Format(time.RFC3339)))
	r.Expect(t, "all added "+ns+"/soon", "all added "+ns+"/renewed", "past entered "+ns+"/past")
	r.Saved(t)
	r.Kill(t)
	m.Change("renewed", fmt.Sprintf(`{"data":{"value":%q}}`, soon.Add(time.Hour).Format(time.RFC3339)))
	routertest.Poll(t, "the time to come", func() bool { return time.Now().After(soon) })
	r = routertest.StartFile(t, file)
	want := []string{"past entered " + ns + "/soon", "all updated " + ns + "/renewed"}
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)
}
