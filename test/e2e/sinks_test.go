package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestPausedRouteAcrossRestarts shows that a route that reached its limit of deletes keeps its
// backlog, even after a SIGKILL. After a start it is still paused. Each resume permits as many
// deletes again. Each object is deleted once.
func TestPausedRouteAcrossRestarts(t *testing.T) {
	// Guarantee: kubernetes-limits, kubernetes-limits-kept
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
sinks:
  out: {stdout: {}}
  cluster: {kubernetes: {maxDeletes: 3/1h, allow: [{resource: v1/configmaps, namespaces: %[1]s, verbs: delete}]}}
routes:
  - {name: all, from: maps, ops: added, to: out}
  - {name: purge, from: maps, ops: added, filter: object.metadata.name.startsWith("x"), emit: '{"delete": {}}', onFailure: drop, to: cluster}
`, ns))
	deleted := func() int {
		names := make(map[string]int)
		for _, q := range s.Requests(t, func(q sandboxtest.Request) bool {
			return q.Verb == "delete" && q.Resource == "configmaps" && q.Namespace == ns && q.Code == 200
		}) {
			if names[q.Name]++; names[q.Name] > 1 {
				t.Errorf("%s was deleted twice", q.Name)
			}
		}
		return len(names)
	}
	paused := func(r *routertest.Router, sum int) {
		t.Helper()
		var said string
		routertest.Poll(t, "the route to be paused", func() bool {
			said = r.Status(t)
			return strings.Contains(said, "routes/purge: paused") && strings.Contains(r.Log(), "route paused") &&
				deleted() >= sum && r.Metric(t, `deltarouter_route_paused{route="purge"}`) == 1
		})
		if !strings.Contains(said, `route "purge" has deleted 3 objects within 1h (maxDeletes), and would delete v1/configmaps `+ns+"/x") {
			t.Errorf("the status says %s", said)
		}
		if n := deleted(); n != sum {
			t.Errorf("%d were deleted, want %d", n, sum)
		}
		if r.Metric(t, `deltarouter_route_paused{route="all"}`) != 0 {
			t.Error("the metric does not say which route is paused")
		}
		if n := r.Metric(t, `deltarouter_route_queue_deltas{route="purge"}`); n != float64(8-sum) {
			t.Errorf("it owes %v of 8, and has deleted %d", n, sum)
		}
	}
	first := routertest.StartFile(t, file)
	first.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	var want []string
	for i := range 8 {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("x%d", i), "1"))
		want = append(want, fmt.Sprintf("all added %s/x%d", ns, i))
	}
	first.Expect(t, want...)
	paused(first, 3)
	first.Saved(t)
	first.Kill(t)

	second := routertest.StartFile(t, file)
	second.Ready(t)
	paused(second, 3)
	resume := func() {
		t.Helper()
		if out, code := routertest.Control(t, file, "resume", "purge"); code != 0 || out != "route purge goes on\n" {
			t.Errorf("exit code %d, %q", code, out)
		}
	}
	resume()
	paused(second, 6)
	if code := second.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}

	third := routertest.StartFile(t, file)
	third.Ready(t)
	paused(third, 6)
	resume()
	routertest.Poll(t, "all to be deleted", func() bool {
		return deleted() == 8 && third.Metric(t, `deltarouter_route_queue_deltas{route="purge"}`) == 0
	})
	if third.Metric(t, `deltarouter_route_paused{route="purge"}`) != 0 {
		t.Error("the metric says that the route is paused")
	}
	if _, said := third.Get(t, "/readyz"); strings.Contains(said, "routes/") {
		t.Errorf("/readyz says %s", said)
	}
}

// TestCheckSendsNothing shows that check -connect tests whether each sink can be reached, without a
// trace there: no request, no file, and only access reviews at an API server.
func TestCheckSendsNothing(t *testing.T) {
	// Guarantee: check-sends-nothing
	t.Parallel()
	s := sandboxtest.Start(t).WithUser(t)
	ns := s.Namespace(t)
	var requests, connections atomic.Int32
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	hook.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	hook.Start()
	folder := t.TempDir()
	config := `
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
sinks:
  hook: {webhook: {url: "%[2]s/in", mode: batched, headers: {Authorization: %[3]s}}}
  log: {file: {path: %[4]s}}
  there: {kubernetes: {allow: [{resource: v1/configmaps, namespaces: %[1]s, verbs: [apply, delete, event]}]}}
  far: {kubernetes: {kubeconfig: %[5]q, allow: [{resource: v1/configmaps, namespaceSelector: a=b, verbs: [create, merge, json]}]}}
routes: [{name: r, from: maps, to: [hook, log, there, far]}]
`
	check := func(authorization, path string) (string, int) {
		t.Helper()
		file := routertest.Install(t, s.LimitedKubeconfig(), fmt.Sprintf(config, ns, hook.URL, authorization, path, s.LimitedKubeconfig()))
		_, said, code := checkConnect(t, file)
		return said, code
	}
	s.Grant(t, "", "", []string{"configmaps"}, []string{"get", "list", "watch", "create", "patch", "delete"})
	s.Grant(t, "", "", []string{"namespaces"}, []string{"get"})
	s.Grant(t, "", "events.k8s.io", []string{"events"}, []string{"create"})
	good := filepath.Join(folder, "events.jsonl")
	routertest.Poll(t, "the grants to be known", func() bool {
		said, code := check("token", good)
		return code == 0 && !strings.Contains(said, "sinks.")
	})
	if said, code := check("{env: NO_SUCH_VARIABLE}", filepath.Join(folder, "none", "events.jsonl")); code != 0 || !strings.Contains(said, "sinks.hook") || !strings.Contains(said, "sinks.log") {
		t.Errorf("what is wrong with two sinks: exit code %d, %s", code, said)
	}
	hook.Close() // waits for running requests
	if requests.Load() != 0 || connections.Load() == 0 {
		t.Errorf("the receiver got %d requests in %d connections", requests.Load(), connections.Load())
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("the folder has %v (%v)", left, err)
	}
	asked := 0
	for _, q := range s.Requests(t, func(q sandboxtest.Request) bool { return q.User == s.LimitedUser() }) {
		switch {
		case q.Verb == "create" && q.Resource == "selfsubjectaccessreviews":
			asked++
		case !slices.Contains([]string{"get", "list", "watch"}, q.Verb):
			t.Errorf("the API server was asked to %s %s", q.Verb, q.URI)
		}
	}
	if asked == 0 {
		t.Error("nothing was asked of the API server, or the user has another name")
	}
}

// TestRightsOfTheExample shows that the example of docs/SINKS.md lacks nothing with the roles there
// and those to watch, and that each of their rules is needed.
func TestRightsOfTheExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/SINKS.md")
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(text), "\n## kubernetes\n")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section, 2)
	config := blocks[0][1]
	s := sandboxtest.Start(t).WithUser(t)
	roles := strings.ReplaceAll(blocks[1][1], "{kind: ServiceAccount, name: deltarouter, namespace: deltarouter}", "{apiGroup: rbac.authorization.k8s.io, kind: User, name: "+s.LimitedUser()+"}")
	s.Apply(t, "", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	s.Grant(t, "", "", []string{"pods"}, []string{"get", "list", "watch"})
	file := routertest.Install(t, s.LimitedKubeconfig(), "sources: {pods: {resource: v1/pods}}\n"+config)
	var said string
	lacks := func() bool {
		_, said, _ = checkConnect(t, file)
		return strings.Contains(said, "may not")
	}
	s.Apply(t, "", roles)
	defer func() {
		if t.Failed() {
			t.Log(said)
		}
	}()
	routertest.Poll(t, "nothing to lack", func() bool { return !lacks() })
	for _, rule := range regexp.MustCompile("(?m)^  - {api.*$").FindAllString(roles, -1) {
		// reads are optional
		if !strings.Contains(rule, "verbs: [get]") || strings.Contains(rule, "namespaces") {
			without := regexp.MustCompile("verbs: .*}").ReplaceAllString(rule, "verbs: [list]}")
			s.Apply(t, "", strings.ReplaceAll(roles, rule, without))
			routertest.Poll(t, "something to lack without "+rule, lacks)
			s.Apply(t, "", roles)
			routertest.Poll(t, "nothing to lack again", func() bool { return !lacks() })
		}
	}
}

// TestCheckWrites shows that check -connect checks the rights that the grants of a sink need, and
// prints the missing roles.
func TestCheckWrites(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Start(t).WithUser(t)
	ns := s.Namespace(t)
	config := `
sources: {maps: {resource: v1/configmaps, namespaces: %[1]s}}
sinks:
  cluster:
    kubernetes:
      %[2]s
      allow:
        - {resource: v1/configmaps, namespaces: %[1]s, verbs: [apply, delete]}
        - {resource: v1/pods, namespaces: %[1]s, verbs: [evict, event]}
        - {resource: apps/v1/deployments, subresources: [scale], namespaceSelector: a=b, verbs: merge}
routes:
  - name: r
    from: maps
    emit: '{"delete": {}, "target": {"resource": "v1/configmaps", "namespace": object.metadata.namespace, "name": object.metadata.name}}'
    to: cluster
`
	s.Grant(t, ns, "", []string{"configmaps"}, []string{"get", "list", "watch", "create", "delete"})
	file := routertest.Install(t, s.LimitedKubeconfig(), fmt.Sprintf(config, ns, "dryRun: true"))
	var roles, said string
	check := func() int {
		var code int
		roles, said, code = checkConnect(t, file)
		return code
	}
	routertest.Poll(t, "the grants to be known", func() bool { return check() == 2 && !strings.Contains(said, "sources.maps") })
	for _, want := range []string{
		fmt.Sprintf("config.yaml:12:22: sinks.cluster.kubernetes.allow[0].resource: the router may not patch configmaps in %s; the rules below allow it", ns),
		fmt.Sprintf("config.yaml:13:22: sinks.cluster.kubernetes.allow[1].resource: the router may not create pods/eviction in %s; the rules", ns),
		fmt.Sprintf("config.yaml:13:22: sinks.cluster.kubernetes.allow[1].resource: the router may not create events.events.k8s.io in %s; the rules", ns),
		"config.yaml:14:22: sinks.cluster.kubernetes.allow[2].resource: the router may not get namespaces; the rules",
		"config.yaml:14:22: warning: sinks.cluster.kubernetes.allow[2].resource: the router may not patch deployments/scale.apps everywhere; the rules",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
	s.Apply(t, "", roles)
	routertest.Poll(t, "the roles to be known", func() bool { return check() == 0 && said == "" })

	// A sink's own kubeconfig is checked separately.
	own := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(config, ns, "kubeconfig: "+s.LimitedKubeconfig()))
	if _, said, code := checkConnect(t, own); code != 0 || strings.Contains(said, "sinks.") {
		t.Errorf("exit code %d: %s", code, said)
	}
	another := s.Namespace(t)
	own = routertest.Install(t, s.Kubeconfig(), strings.ReplaceAll(fmt.Sprintf(config, ns, "kubeconfig: "+s.LimitedKubeconfig()), "v1/pods, namespaces: "+ns, "v1/pods, namespaces: "+another))
	if _, said, code := checkConnect(t, own); code != 0 || !strings.Contains(said, "allow[1].resource: may not create pods/eviction in namespace \""+another+"\"") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
