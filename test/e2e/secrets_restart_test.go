package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	t.Parallel()
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

// TestPendingSecrets: deltas of Secrets that are pending at a stop or a crash have exact `changed`
// and `diff` afterwards, and the present object, also if it changed again while the router was
// down. None of their values reaches the disk.
func TestPendingSecrets(t *testing.T) {
	// Guarantee: secrets-known-changes, secrets-off-disk
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	secrets := routertest.Use(t, s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ns)
	for _, end := range []string{"kill", "stop"} {
		t.Run(end, func(t *testing.T) { pendingSecrets(t, s, ns, secrets, end) })
	}
}

func pendingSecrets(t *testing.T, s *sandboxtest.Sandbox, ns string, secrets routertest.Objects, end string) {
	const canary = "canary-in-the-coal-mine"
	value := func(n int) string { return base64.StdEncoding.EncodeToString(fmt.Append(nil, canary, n)) }
	name := func(what string) string { return end + "-" + what }
	for _, what := range []string{"value", "label", "again"} {
		secrets.Make(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"k": value(1), "l": value(1)},
			"metadata": map[string]any{"name": name(what), "labels": map[string]any{"of": end, "a": "1"}},
		}})
	}
	var takes atomic.Bool
	var mu sync.Mutex
	got := make(map[string][]string)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Subject string          `json:"subject"`
			Data    json.RawMessage `json:"data"`
		}
		if !takes.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		} else {
			mu.Lock()
			defer mu.Unlock()
			got[e.Subject] = append(got[e.Subject], string(e.Data))
		}
	}))
	defer hook.Close()
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`
sources: {tokens: {resource: v1/secrets, namespaces: %s, secrets: true, labelSelector: of=%s}}
sinks: {hook: {webhook: {url: %q}}}
routes:
  - name: all
    from: tokens
    ops: updated
    key: string(object.data.k)
    retry: {backoff: 10ms, max: 100ms}
    emit: |
      {"k": string(object.data.k), "changed": changed("data.k"), "labels": changed("metadata.labels"),
       "paths": diff(oldObject, object).map(d, d.path).filter(p, p != "metadata.resourceVersion")}
    to: hook
`, ns, end, hook.URL))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	secrets.Change(name("value"), fmt.Sprintf(`{"data": {"k": %q}}`, value(2)))
	secrets.Change(name("label"), `{"metadata": {"labels": {"a": "2"}}}`)
	secrets.Change(name("again"), fmt.Sprintf(`{"data": {"k": %q}}`, value(2)))
	routertest.Poll(t, "three pending deltas", func() bool { return r.Metric(t, `deltarouter_route_queue_deltas{route="all"}`) == 3 })
	if r.Saved(t); end == "kill" {
		r.Kill(t)
	} else {
		r.Stop(t)
	}
	must.Report(t, filepath.WalkDir(filepath.Join(filepath.Dir(file), "state"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte(value(1)[:24])) {
			t.Errorf("the data of a Secret is in %s", path)
		}
		return err
	}))
	secrets.Change(name("again"), fmt.Sprintf(`{"data": {"l": %q}}`, value(3)))

	takes.Store(true)
	routertest.StartFile(t, file)
	event := func(n int, changed, labels bool, paths ...string) string {
		return fmt.Sprintf(`{"changed":%v,"k":%q,"labels":%v,"paths":["%s"]}`, changed, canary+fmt.Sprint(n), labels, strings.Join(paths, `","`))
	}
	want := map[string][]string{
		"value": {event(2, true, false, "data.k")},
		"label": {event(1, false, true, "metadata.labels.a")},
		"again": {event(2, true, false, "data.k", "data.l"), event(2, false, false, "data.l")}, // the net change, and the one while it was down
	}
	routertest.Poll(t, "four events", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(slices.Concat(got[ns+"/"+name("value")], got[ns+"/"+name("label")], got[ns+"/"+name("again")])) >= 4
	})
	mu.Lock()
	defer mu.Unlock()
	for what, events := range want {
		if have := got[ns+"/"+name(what)]; !slices.Equal(have, events) {
			t.Errorf("%s:\ngot  %q\nwant %q", what, have, events)
		}
	}
}
