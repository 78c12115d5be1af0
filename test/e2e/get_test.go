package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const getConfig = `
sources:
  maps:
    resource: v1/configmaps
    namespaces: [%s, %s]
    indexes: {byValue: object.data.value}
  plain: {resource: v1/secrets, namespaces: %[1]s, indexes: {byType: object.type}}
  secret: {resource: v1/secrets, namespaces: %[1]s, secrets: true, indexes: {byToken: string(object.data.token)}}
sinks: {out: {discard: {}}}
routes: [{name: all, from: [maps, plain, secret], to: out}]
`

// TestGet queries cached objects by name, namespace, index and expression, and compares them with
// those of the API server.
func TestGet(t *testing.T) {
	// Guarantee: get-consistent
	t.Parallel()
	s := sandboxtest.Start(t)
	one, two := s.Namespace(t), s.Namespace(t)
	names := make([]string, 0, 6)
	for i, ns := range []string{one, two, one, two, one} {
		name := "m" + strconv.Itoa(i)
		routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap(name, strconv.Itoa(i%2)))
		names = append(names, ns+"/"+name)
	}
	slices.Sort(names)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(getConfig, one, two))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	get := func(args ...string) (out string, code int) {
		t.Helper()
		return routertest.Control(t, file, append([]string{"get"}, args...)...)
	}
	check := func(want string, args ...string) {
		t.Helper()
		if out, code := get(append(args, "-o", "name")...); code != 0 || out != want {
			t.Errorf("router get %q: exit code %d\n got %q\nwant %q", args, code, out, want)
		}
	}
	lines := func(names ...string) string { return strings.Join(names, "\n") + "\n" }
	check(lines("maps", "plain", "secret"))
	check(lines(names...), "maps")
	check(lines(one+"/m0", one+"/m2", one+"/m4"), "maps", "-n", one)
	check(lines(two+"/m1"), "maps", "-filter", `object.metadata.name == "m1"`)
	check(lines(two+"/m1", two+"/m3"), "maps", "-index", "byValue=1")
	check(lines(two+"/m3"), "maps", "-index", "byValue=1", "-filter", `lookup("byValue", "1").size() == 2 && object.metadata.name != "m1"`)
	check(lines(two+"/m3"), "maps", "-index", "name=m3")
	check("", "maps", "-n", "elsewhere")

	out, code := get("maps", one+"/m2", "-o", "json")
	var got, want unstructured.Unstructured
	live, err := routertest.Use(t, s, routertest.ConfigMaps, one).Get(t.Context(), "m2", metav1.GetOptions{})
	must.Succeed(t, err)
	want = *live
	want.SetManagedFields(nil)
	if err := got.UnmarshalJSON([]byte(out)); err != nil || code != 0 || fmt.Sprint(got.Object) != fmt.Sprint(want.Object) {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	for _, c := range []struct{ args, want string }{
		{"mops", `there is no source "mops"; did you mean "maps"?`},
		{"maps none", `source maps has no object "none"`},
		{"maps -index byValu=1", `source "maps" has no index "byValu"; did you mean "byValue"?`},
		{"maps -filter objct.x", `filter: 1:1: undeclared reference to 'objct'; did you mean "object"?`},
		{"maps -filter object.data", `filter: 1:1: the result must be true or false`},
	} {
		if out, code := get(strings.Fields(c.args)...); code != 1 || !strings.Contains(out, c.want) {
			t.Errorf("router get %s: exit code %d, %s", c.args, code, out)
		}
	}
	if out, code := get("maps", "-filter", `object.data.nope == "1"`); code != 0 || !strings.Contains(out, "5 objects without a field") {
		t.Errorf("exit code %d, %s", code, out)
	}
	pages(t, s, file, one, names)
	reindexed(t, r, file, fmt.Sprintf(getConfig, one, two))
}

// pages reads page after page while objects are created and deleted: each object that exists
// throughout must appear once and in order.
func pages(t *testing.T, s *sandboxtest.Sandbox, file, ns string, names []string) {
	t.Helper()
	client, m := api.NewClient("unix:"+filepath.Join(filepath.Dir(file), "api.sock")), routertest.Use(t, s, routertest.ConfigMaps, ns)
	var got []string
	token, version := "", 0
	for page := 0; page == 0 || token != ""; page++ {
		extra := fmt.Sprintf("m%d-extra", page)
		m.Make(routertest.ConfigMap(extra, ""))
		routertest.Poll(t, "the object that was made", func() bool {
			a, err := client.Query(t.Context(), api.Query{Source: "maps", Name: extra, Limit: 1}, "")
			return err == nil && len(a.Items) == 1
		})
		a, err := client.Query(t.Context(), api.Query{Source: "maps", Limit: 2}, token)
		if err != nil || !a.Synced || len(a.Items) > 2 {
			t.Fatalf("%+v, %v", a, err)
		}
		if now, err := strconv.Atoi(a.ResourceVersion); err != nil || now < version {
			t.Errorf("resourceVersion %q after %d", a.ResourceVersion, version)
		} else {
			version = now
		}
		for _, item := range a.Items {
			var o unstructured.Unstructured
			must.Succeed(t, json.Unmarshal(item, &o.Object))
			got = append(got, o.GetNamespace()+"/"+o.GetName())
		}
		token = a.Continue
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("not in order, or twice: %q", got)
	}
	stayed := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return strings.HasSuffix(name, "-extra") })
	if !slices.Equal(stayed, names) {
		t.Errorf("got %q, want %q", stayed, names)
	}
}

// reindexed shows that an index that a reload adds can be queried, and one that it removes cannot.
func reindexed(t *testing.T, r *routertest.Router, file, config string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	changed := strings.Replace(string(text), "byValue: object.data.value", "byFirst: object.metadata.name", 1)
	if !strings.Contains(config, "byValue") || os.WriteFile(file, []byte(changed), 0o600) != nil {
		t.Fatal("the configuration could not be changed")
	}
	r.WaitLog(t, "the reload", func(log string) bool { return strings.Contains(log, `"msg":"reloaded"`) })
	if out, code := routertest.Control(t, file, "get", "maps", "-index", "byFirst=m3", "-o", "name"); code != 0 || !strings.HasSuffix(out, "/m3\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := routertest.Control(t, file, "get", "maps", "-index", "byValue=1"); code != 1 || !strings.Contains(out, `has no index "byValue"`) {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestGetSecrets shows that the values in Secrets can neither be read nor be guessed by an index or
// an expression, even if the router has them.
func TestGetSecrets(t *testing.T) {
	// Guarantee: secrets-redacted, api-no-secrets
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	secrets := routertest.Use(t, s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ns)
	const token = "aHVudGVyMg=="
	secrets.Make(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"token": token},
		"metadata": map[string]any{"name": "s", "annotations": map[string]any{"kapp.k14s.io/original": token, "a": "b"}},
	}})
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("m", token))
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(getConfig, ns, s.Namespace(t)))
	routertest.StartFile(t, file).Ready(t)
	for _, c := range []struct {
		args []string
		code int
		want string // contained
	}{
		{[]string{"plain", "s", "-o", "json"}, 0, `"type": "Opaque"`},
		{[]string{"secret", "s", "-o", "yaml"}, 0, "data:\n  token: (redacted)\n"},
		{[]string{"secret", "-index", "byToken=" + token}, 1, `index "byToken" of source "secret" cannot be queried: it may contain data of Secrets`},
		{[]string{"plain", "-index", "byType=Opaque", "-o", "name"}, 0, ns + "/s\n"},
		{[]string{"secret", "-index", "name=s", "-o", "name"}, 0, ns + "/s\n"},
		{[]string{"secret", "-filter", `string(object.data.token).startsWith("h")`}, 0, "No objects."},
		{[]string{"secret", "-filter", `"token" in object.data`, "-o", "name"}, 0, ns + "/s\n"},
		{[]string{"maps", "-filter", `lookup("secret.byToken", object.data.value).size() > 0`}, 1, `source "secret" has no index "byToken"`},
		{[]string{"maps", "-filter", `list("secret").exists(s, string(s.data.token) == "hunter2")`}, 0, "No objects."},
		{[]string{"maps", "-filter", `lookup("secret.name", "s").exists(s, string(s.data.token) == "hunter2")`}, 0, "No objects."},
		{[]string{"maps", "-filter", fmt.Sprintf(`get("secret", %q, "s").data.token == b"hunter2"`, ns)}, 0, "No objects."},
		{[]string{"maps", "-filter", fmt.Sprintf(`get("secret", %q, "s").data.size() == 1`, ns), "-n", ns, "-o", "name"}, 0, ns + "/m\n"},
	} {
		out, code := routertest.Control(t, file, append([]string{"get"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, token) && c.args[0] != "maps" {
			t.Errorf("router get %q: exit code %d\n%s\nwant %d and %s", c.args, code, out, c.code, c.want)
		}
	}
}
