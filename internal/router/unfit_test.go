package router_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/test/must"
)

// gizmos is the OpenAPI document of a custom resource whose spec has one field.
const gizmos = `{"paths": {"/apis/example.org/v1/gizmos": {"get": {"x-kubernetes-action": "list",
"x-kubernetes-group-version-kind": {"group": "example.org", "version": "v1", "kind": "Gizmo"}}}},
"components": {"schemas": {"org.example.v1.Gizmo": {"type": "object",
"x-kubernetes-group-version-kind": [{"group": "example.org", "version": "v1", "kind": "Gizmo"}],
"properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
"spec": {"type": "object", "properties": {%q: {"type": "integer"}}}}}}}}`

// TestSchemaChanges: a custom resource whose schema has changed disables the routes that do not fit
// it, when a router with a state folder starts again: named in the log, the status and a metric.
// They run again when they fit.
func TestSchemaChanges(t *testing.T) {
	var field atomic.Value
	field.Store("size")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3/apis/example.org/v1" {
			fmt.Fprintf(w, gizmos, field.Load())
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	kubeconfig := write(t, fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c}}], current-context: c}`, server.URL))
	config := fmt.Sprintf(reloadable, "test", kubeconfig) + "state: {dir: " + t.TempDir() + `}
sources: {gizmos: {resource: example.org/v1/gizmos}}
sinks: {one: {fake: {}}}
routes:
  - {name: big, from: gizmos, filter: object.spec.size > 3, to: one}
  - {name: any, from: gizmos, to: one}
`
	file := write(t, config)
	t.Run("fits", func(t *testing.T) {
		if r := startReloadingFile(t, file, &journal{}); !strings.Contains(r.log.String(), "routes=2") {
			t.Error(r.log)
		}
	})
	field.Store("dimensions")
	t.Run("changed", func(t *testing.T) {
		r := startReloadingFile(t, file, &journal{})
		for _, want := range []string{"a route does not fit the schemas of the cluster", "route=big", "routes=1"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, r.log)
			}
		}
		if text := r.get(t, "/readyz?verbose"); !strings.Contains(text, "routes/big") {
			t.Error(text)
		}
		if text := r.get(t, "/metrics"); !strings.Contains(text, `deltarouter_route_disabled{route="big"} 1`) {
			t.Error("the metric is missing")
		}
		r.change(strings.Replace(config, "name: any", "name: other", 1), true, "msg=reloaded")
		if text := r.get(t, "/readyz?verbose"); !strings.Contains(text, "routes/big") {
			t.Error(text)
		}
		r.change(strings.Replace(config, "spec.size", "spec.dimensions", 1), true, "msg=reloaded")
		if text := r.get(t, "/readyz?verbose") + r.get(t, "/metrics"); strings.Contains(text, "routes/big") || strings.Contains(text, `route_disabled{`) {
			t.Error(text)
		}
		r.change(config, true, "the former one continues") // it was not disabled before
	})
	t.Run("repaired", func(t *testing.T) {
		must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
		r := startReloadingFile(t, file, &journal{}, timer.Scaled(time.Now(), 600))
		r.logs("a route does not fit the schemas of the cluster")
		field.Store("size")
		r.logs("disabled routes fit the schemas of the cluster again")
		r.logs("msg=reloaded")
		if text := r.get(t, "/readyz?verbose"); strings.Contains(text, "routes/big") {
			t.Error(text)
		}
	})
}

// get returns the answer of the probes.
func (r *reloading) get(t *testing.T, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.probes+path, http.NoBody)
	must.Succeed(t, err)
	answer, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer func() { must.Report(t, answer.Body.Close()) }()
	text, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return string(text)
}
