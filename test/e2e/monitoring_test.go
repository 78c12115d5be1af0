package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/prometheustest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// rare are parts of queries without a result in a healthy router: nothing relists, no guest fails.
var rare = []string{"deltarouter_source_relists_total", "deltarouter_guests_ended_total"}

// TestDashboard runs every query of deploy/monitoring/dashboard.json on a Prometheus that scrapes a
// router with every kind of metric: with classic histograms and with native ones. Each query must
// have a result.
func TestDashboard(t *testing.T) {
	t.Parallel()
	prometheustest.Program(t, "prometheus")
	queries := dashboardQueries(t)
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, ns, pod("web", "n1", "", 0))
	h := newHook(t)
	h.answer(http.StatusBadRequest)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  pods: {resource: v1/pods, namespaces: %[1]s, indexes: {byNode: object.spec.nodeName}}
  maps: {resource: v1/configmaps, namespaces: %[1]s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %[2]q}}
handlers:
  alert: {wasm: {module: %[3]q}}
routes:
  - {name: restarts, from: pods, ops: updated, handler: alert, to: out}
  - {name: rejected, from: maps, ops: added, emit: '{"n": object.metadata.name}', to: hook, retry: {backoff: 10ms, max: 50ms, attempts: 1}}
  - name: since
    from: pods
    when: size(lookup("pods.byNode", object.spec.nodeName)) > 0
    for: 1h
    watches: {maps: 'lookup("pods.name", object.metadata.name)'}
    to: out
`, ns, h.URL, routertest.Guest(t, "restart-alert")))
	r.Ready(t)
	servers := map[string]*prometheustest.Server{
		"classic": prometheustest.Start(t, r.Probes()),
		"native":  prometheustest.Start(t, r.Probes(), "--enable-feature=native-histograms"),
	}
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("web", "1"))
	routertest.Use(t, s, routertest.Pods, ns).Change("web",
		`{"status":{"containerStatuses":[{"name":"web","image":"i","imageID":"","ready":true,"restartCount":9}]}}`, "status")
	r.Expect(t, "restarts deltarouter.restart-alert "+ns+"/web")
	const histogram = "deltarouter_route_delivery_duration_seconds"
	for name, form := range map[string]string{"classic": histogram + "_bucket", "native": "histogram_count(" + histogram + ")"} {
		server, pending := servers[name], append([]string{form}, queries...)
		t.Cleanup(func() {
			if t.Failed() && len(pending) > 0 {
				t.Logf("without a result, %s: %q", name, pending)
			}
		})
		routertest.Poll(t, "results of all queries, "+name, func() bool {
			pending = withoutResult(t, server, pending)
			return len(pending) == 0
		})
	}
}

// withoutResult returns the queries that have no result yet.
func withoutResult(t *testing.T, server *prometheustest.Server, queries []string) (pending []string) {
	t.Helper()
	for _, q := range queries {
		n, err := server.Query(t, q)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if n == 0 && !containsAny(q, rare) {
			pending = append(pending, q)
		}
	}
	return pending
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// dashboardQueries returns the queries of all panels, for all routers and routes.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	content, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	must.Succeed(t, err)
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	must.Succeed(t, json.Unmarshal(content, &dashboard))
	all := strings.NewReplacer("$instance", ".+", "$route", ".+", "$__rate_interval", "5m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries = append(queries, all.Replace(target.Expr))
		}
	}
	if len(queries) < 30 {
		t.Fatalf("the dashboard has only %d queries", len(queries))
	}
	return queries
}
