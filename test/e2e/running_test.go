package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestMetricNames checks the names that dashboards and alerts rely on.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, ns, pod("web", "n1", "", 0))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  pods: {resource: v1/pods, namespaces: %s, indexes: {byNode: object.spec.nodeName}}
handlers:
  alert: {wasm: {module: %q}}
routes:
  - {name: restarts, from: pods, ops: updated, handler: alert, to: out}
  - {name: all, from: pods, ops: [added, updated], filter: 'object.status.containerStatuses[0].restartCount > 0', to: out}
`, ns, routertest.Guest(t, "restart-alert")))
	r.Ready(t)
	routertest.Use(t, s, routertest.Pods, ns).Change("web",
		`{"status":{"containerStatuses":[{"name":"web","image":"i","imageID":"","ready":true,"restartCount":9}]}}`, "status")
	r.Expect(t, "all updated "+ns+"/web", "restarts deltarouter.restart-alert "+ns+"/web")
	var body string
	routertest.Poll(t, "the deliveries to be counted", func() bool {
		_, body = r.Get(t, "/metrics")
		return strings.Contains(body, `deltarouter_route_deltas_total{result="delivered",route="restarts"} 1`)
	})
	for _, want := range []string{
		`deltarouter_source_deltas_total{op="updated",source="pods"}`,
		`deltarouter_route_deltas_total{result="matched",route="all"}`,
		`deltarouter_route_deltas_total{result="filtered",route="all"}`,
		`deltarouter_route_deltas_total{result="dropped",route="all"}`,
		`deltarouter_route_deltas_total{result="dead_lettered",route="all"}`,
		`deltarouter_route_deltas_total{result="coalesced",route="all"}`,
		`deltarouter_route_events_total{result="delivered",route="all",sink="out"}`,
		`deltarouter_route_queue_deltas{route="all"}`,
		`deltarouter_route_oldest_pending_seconds{route="all"}`,
		`deltarouter_route_delivery_duration_seconds_count{route="all"}`,
		`deltarouter_handler_call_duration_seconds_count{handler="alert"}`,
		`deltarouter_source_synced{source="pods"} 1`,
		`deltarouter_source_objects{source="pods"} 1`,
		`deltarouter_source_bytes{source="pods"}`,
		`deltarouter_source_last_contact_seconds{source="pods"}`,
		`deltarouter_guest_memory_bytes{handler="alert"}`,
		`deltarouter_config_last_reload_successful 1`,
		`deltarouter_config_hash{hash="`,
		`deltarouter_build_info{version="`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if code, body := r.Get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz says %d %s", code, body)
	}
}

// hook is a webhook with a configurable answer.
type hook struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	got    []string // CloudEvents in JSON
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{status: http.StatusOK}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.status == http.StatusOK {
			h.got = append(h.got, string(body))
		}
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

// hold delays all answers until the returned function is called.
func (h *hook) hold() (release func()) {
	h.mu.Lock()
	return sync.OnceFunc(h.mu.Unlock)
}

func (h *hook) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

// TestSinkDown shows that an unavailable sink stalls its own route only and gets its backlog when
// it is available again. Rejected deltas become dead letters.
func TestSinkDown(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newHook(t)
	h.answer(http.StatusServiceUnavailable)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: out, from: maps, to: out}
  - {name: hook, from: maps, ops: added, emit: '{"n": object.metadata.name}', to: hook, retry: {backoff: 10ms, max: 50ms, attempts: 1}}
`, ns, h.URL))
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "1"))
	maps.Make(routertest.ConfigMap("b", "1"))
	r.Expect(t, "out added "+ns+"/a", "out added "+ns+"/b")
	routertest.Poll(t, "the webhook in /readyz, which is ready all the same", func() bool {
		code, body := r.Get(t, "/readyz")
		return code == http.StatusOK && strings.Contains(body, "[-]sinks/hook: not ok\n")
	})
	h.answer(http.StatusOK)
	routertest.Poll(t, "the webhook to get what it missed", func() bool { return h.count() == 2 })
	routertest.Poll(t, "the webhook to be gone from /readyz", func() bool { _, body := r.Get(t, "/readyz"); return !strings.Contains(body, "sinks/hook") })

	h.answer(http.StatusBadRequest)
	maps.Make(routertest.ConfigMap("rejected", "1"))
	r.WaitLog(t, "a line in the log about the dead letter", func(log string) bool {
		return strings.Contains(log, "written to the dead letters") && strings.Contains(log, "added maps "+ns+"/rejected")
	})
	routertest.Poll(t, "the dead letter", func() bool {
		_, metrics := r.Get(t, "/metrics")
		return strings.Contains(metrics, `deltarouter_dead_letters{route="hook"} 1`)
	})
	var event struct{ Type, Subject string }
	if err := json.Unmarshal([]byte(h.got[0]), &event); err != nil || event.Type != "io.deltarouter.added" || !strings.HasPrefix(event.Subject, ns+"/") {
		t.Errorf("the webhook got %s (%v)", h.got[0], err)
	}
}

// TestStopDrains shows that a stopping router delivers its backlog within the timeout.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	h := newHook(t)
	config := fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q}}
routes:
  - {name: out, from: maps, to: out}
  - {name: hook, from: maps, ops: added, to: hook, concurrency: 1, batch: {size: 1}}
`, ns, h.URL)
	// It does not answer. The drain would not wait for a sink that is known to be unavailable.
	release := h.hold()
	defer release()
	r := routertest.Start(t, s.Kubeconfig(), config)
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "1"))
	maps.Make(routertest.ConfigMap("b", "1"))
	r.Expect(t, "out added "+ns+"/a", "out added "+ns+"/b")
	must.Succeed(t, r.Process().Signal(syscall.SIGTERM))
	r.WaitLog(t, "the router to be stopping", func(log string) bool { return strings.Contains(log, `"msg":"stopping"`) })
	release()
	state, err := r.Process().Wait()
	if err != nil || state.ExitCode() != 0 || h.count() != 2 {
		t.Errorf("exit code %d (%v), %d events delivered, want 0 and 2", state.ExitCode(), err, h.count())
	}
}

// TestSecondSignal shows that a second signal ends the wait for a sink that does not answer.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	silent := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	t.Cleanup(func() { close(silent); h.Close() })
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks:
  out: {stdout: {}}
  hook: {webhook: {url: %q, timeout: 10m}}
routes:
  - {name: all, from: maps, ops: added, to: [out, hook]}
`, ns, h.URL), "-drain-timeout", "10m")
	r.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	r.Expect(t, "all added "+ns+"/a")
	must.Succeed(t, r.Process().Signal(syscall.SIGINT))
	r.WaitLog(t, "the router to be stopping", func(log string) bool { return strings.Contains(log, `"msg":"stopping"`) })
	if code := r.Stop(t); code != 1 {
		t.Errorf("exit code %d, want 1: deltas were not delivered", code)
	}
}
