package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestSecretsAfterARestart shows that `changed` and `diff` name exactly what changed in a Secret
// while the router was down, and everything if the hash key is another one.
func TestSecretsAfterARestart(t *testing.T) {
	// Guarantee: secrets-known-changes
	s, ns := sandboxtest.StartNamespace(t)
	secrets := routertest.Use(t, s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ns)
	for _, name := range []string{"value", "label", "more", "less", "same", "annotation"} {
		secrets.Make(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"k": "djE=", "l": "djE="},
			"metadata": map[string]any{"name": name, "labels": map[string]any{"a": "1"}},
		}})
	}
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {tokens: {resource: v1/secrets, namespaces: %s, secrets: true}}
sinks: {out: {stdout: {}}}
routes:
  - name: all
    from: tokens
    ops: updated
    emit: |
      {"data": changed("data"), "k": changed("data.k"), "labels": changed("metadata.labels"), "had": has(oldObject.data.m),
       "paths": diff(oldObject, object).map(d, d.path).filter(p, p != "metadata.resourceVersion")}
    to: out
`, ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	r.Saved(t)
	r.Kill(t)
	for name, patch := range map[string]string{
		"value":      `{"data": {"k": "djI="}}`,
		"label":      `{"metadata": {"labels": {"a": "2"}}}`,
		"more":       `{"data": {"m": "djE="}}`,
		"less":       `{"data": {"k": null}}`,
		"annotation": `{"metadata": {"annotations": {"a": "1"}}}`,
	} {
		secrets.Change(name, patch)
	}
	r = routertest.StartFile(t, file)
	compare := func(what string, want map[string]string) {
		t.Helper()
		r.Wait(t, what, func(events []routertest.Event) bool { return len(events) >= len(want) })
		events := r.Events()
		if len(events) != len(want) {
			t.Errorf("%s: %q", what, routertest.Summary(events))
		}
		for name, data := range want {
			for _, e := range routertest.About(events, ns+"/"+name) {
				if string(e.Data) != data {
					t.Errorf("%s: %s\ngot  %s\nwant %s", what, e, e.Data, data)
				}
			}
		}
	}
	while := map[string]string{
		"value":      `{"data":true,"had":false,"k":true,"labels":false,"paths":["data.k"]}`,
		"label":      `{"data":false,"had":false,"k":false,"labels":true,"paths":["metadata.labels.a"]}`,
		"more":       `{"data":true,"had":false,"k":false,"labels":false,"paths":["data.m"]}`,
		"less":       `{"data":true,"had":false,"k":true,"labels":false,"paths":["data.k"]}`,
		"annotation": `{"data":false,"had":false,"k":false,"labels":false,"paths":["metadata.annotations"]}`,
	}
	compare("changes while it was down", while)
	secrets.Change("same", `{"data": {"l": "djI="}}`)
	while["same"] = `{"data":true,"had":false,"k":false,"labels":false,"paths":["data.l"]}`
	compare("and one after it", while)
	r.Saved(t)
	r.Kill(t)

	must.Succeed(t, os.WriteFile(filepath.Join(filepath.Dir(file), "state", "hash.key"), bytes.Repeat([]byte("k"), 32), 0o600))
	secrets.Change("label", `{"metadata": {"labels": {"a": "3"}}}`)
	r = routertest.StartFile(t, file)
	compare("another key", map[string]string{
		"label": `{"data":true,"had":false,"k":true,"labels":true,"paths":["data.k","data.l","metadata.labels.a","type"]}`,
	})
	r.Saved(t)
	r.Kill(t)

	secrets.Change("value", `{"data": {"l": "djI="}}`)
	secrets.Change("label", `{"data": {"l": "djI="}}`)
	r = routertest.StartFile(t, file)
	one := `{"data":true,"had":false,"k":false,"labels":false,"paths":["data.l"]}`
	compare("the same key again", map[string]string{"value": one, "label": one})
}
