package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestSecretsStayOffTheDisk shows that data of Secrets in keys and errors of routes does not reach
// the state folder, and that a limit still works after a restart.
func TestSecretsStayOffTheDisk(t *testing.T) {
	// Guarantee: secrets-off-disk
	t.Parallel()
	const canary = "canary-in-the-coal-mine"
	encoded := base64.StdEncoding.EncodeToString([]byte(canary))
	s, ns := sandboxtest.StartNamespace(t)
	secrets := routertest.Use(t, s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ns)
	for _, name := range []string{"kept", "gone"} {
		secrets.Make(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"token": encoded}, "metadata": map[string]any{"name": name},
		}})
	}
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  tokens: {resource: v1/secrets, namespaces: %[1]s, secrets: true}
  maps: {resource: v1/configmaps, namespaces: %[1]s}
sinks: {out: {stdout: {}}}
define: {token: 'string(get("tokens", object.metadata.namespace, "kept").data.token)'}
routes:
  - {name: limited, from: tokens, ops: updated, limit: {key: string(object.data.token), every: 1h}, to: out}
  - {name: held, from: tokens, ops: deleted, for: 1h, key: string(object.data.token), to: out}
  - {name: fails, from: tokens, ops: updated, emit: '{"t": timestamp(string(object.data.token))}', to: out}
  - {name: looks, from: maps, ops: added, emit: '{"t": timestamp(token)}', to: out}
  - {name: counts, from: maps, ops: added, limit: {key: token, every: 1h}, to: out}
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	secrets.Change("kept", `{"metadata": {"labels": {"a": "1"}}}`)
	secrets.Remove("gone")
	maps.Make(routertest.ConfigMap("m", "1"))
	r.Expect(t, "limited updated "+ns+"/kept", "counts added "+ns+"/m")
	routertest.Poll(t, "two dead letters", func() bool { return strings.Count(dlq(t, file, "list", "-o", "json"), "the error is not stored") == 2 })
	r.Saved(t)
	r.Kill(t)
	err := filepath.WalkDir(filepath.Join(filepath.Dir(file), "state"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(encoded)) {
			t.Errorf("the data of a Secret is in %s", path)
		}
		return err
	})
	must.Report(t, err)
	r = routertest.StartFile(t, file)
	if letters := dlq(t, file, "list"); strings.Contains(letters, canary) {
		t.Errorf("the data of a Secret is in a dead letter:\n%s", letters)
	}
	secrets.Change("kept", `{"metadata": {"labels": {"a": "2"}}}`)
	maps.Make(routertest.ConfigMap("n", "1"))
	for _, route := range []string{"limited", "counts"} {
		routertest.Poll(t, "the limit of "+route, func() bool {
			return r.Metric(t, fmt.Sprintf("deltarouter_route_deltas_total{result=\"suppressed\",route=%q}", route)) == 1
		})
	}
}
