package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestPulledSchemas shows that check, test, explain and eval know a custom resource without its
// cluster from the schemas that `schema pull` has saved, by a flag or by the configuration. The
// file contains names and types only, and a failed pull leaves it unchanged.
func TestPulledSchemas(t *testing.T) {
	t.Parallel()
	s := sandboxtest.New(t, sandboxtest.Options{})
	s.Apply(t, s.Namespace(t), strings.ReplaceAll(strings.ReplaceAll(gizmoDefinition, "gizmo", "widget"), "Gizmo", "Widget"))
	s.Apply(t, s.Namespace(t), strings.ReplaceAll(gizmoDefinition, "{type: integer}",
		`{type: integer}, password: {type: string, default: hunter2, description: it is hunter3, enum: [hunter2, hunter4]}`))
	dir := t.TempDir()
	saved := filepath.Join(dir, "deep", "schemas")
	command := func(args ...string) (string, error) {
		out, err := routertest.Command(args...).CombinedOutput()
		return string(out), err
	}
	file := filepath.Join(saved, "schemas.json")
	var text []byte
	// The definition may have been published a moment ago.
	routertest.Poll(t, "the schema to be published", func() bool {
		out, err := command("schema", "pull", "-o", saved, "-kubeconfig", s.Kubeconfig())
		if err != nil || !strings.HasPrefix(out, file+": ") {
			t.Fatal(err, out)
		}
		if text, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(text, []byte(`"password": "string"`)) && bytes.Contains(text, []byte("example.org/v1/widgets"))
	})
	kubeconfig, err := os.ReadFile(s.Kubeconfig())
	must.Succeed(t, err)
	for word := range strings.FieldsSeq(string(kubeconfig)) {
		if word = strings.Trim(word, `"`); len(word) > 20 && bytes.Contains(text, []byte(word)) {
			t.Error("the file holds what the kubeconfig does")
		}
	}
	if bytes.Contains(text, []byte("hunter")) {
		t.Error("the file holds defaults, descriptions or enumerations")
	}

	// From here on there is no cluster.
	write := func(name, format string, args ...any) string {
		file := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600))
		return file
	}
	const config = `version: 1
cluster: {kubeconfig: ./none}
%s
sources: {gizmos: {resource: example.org/v1/gizmos}}
sinks: {out: {discard: {}}}
routes: [{name: r, from: gizmos, filter: object.spec.%s == 1, to: out}]
`
	const mistake = `config.yaml:6:54: routes[0].filter: org.example.v1.Gizmo.spec has no field "sise"; did you mean "size"?`
	object := write("o.yaml", "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: g, namespace: d}\nspec: {size: 1}\n")
	cases := write("config_test.yaml", "cases: [{name: one, given: {deltas: [{added: {metadata: {namespace: d, name: g}, spec: {size: 1}}}]}, expect: [{route: r, any: true}]}]\n")
	for _, c := range []struct {
		name, key, field string
		args             []string
		fails            bool
		want             string
	}{
		{"check, schema unknown", "", "sise", []string{"check", "-config", "FILE"}, false, "router schema pull saves it"},
		{"check, by the flag", "", "sise", []string{"check", "-config", "FILE", "-schemas", saved}, true, mistake},
		{"check, by the configuration", "schemas: ./deep/schemas", "sise", []string{"check", "-config", "FILE"}, true, mistake},
		{"check, well spelt", "schemas: ./deep/schemas", "size", []string{"check", "-config", "FILE"}, false, "config.yaml: ok"},
		{"check, not there", "schemas: ./shallow", "size", []string{"check", "-config", "FILE"}, true, "router schema pull -o " + filepath.Join(dir, "shallow")},
		{"test", "schemas: ./deep/schemas", "sise", []string{"test", cases}, true, mistake},
		{"test, by the flag", "", "sise", []string{"test", "-schemas", saved, cases}, true, mistake},
		{"test, well spelt", "schemas: ./deep/schemas", "size", []string{"test", cases}, false, "ok"},
		{"explain", "schemas: ./deep/schemas", "sise", []string{"explain", "-config", "FILE", "-object", object}, true, mistake},
		{"eval", "", "size", []string{"eval", "object.spec.sise", "-object", object, "-schemas", saved}, true, `has no field "sise"; did you mean "size"?`},
		{"eval, well spelt", "", "size", []string{"eval", "object.spec.size", "-object", object, "-schemas", saved}, false, "1\n"},
	} {
		file := write("config.yaml", config, c.key, c.field)
		for i := range c.args {
			c.args[i] = strings.ReplaceAll(c.args[i], "FILE", file)
		}
		out, err := command(c.args...)
		if (err != nil) != c.fails || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, %s", c.name, err, out)
		}
	}

	gone := write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`)
	out, err := command("schema", "pull", "-o", saved, "-kubeconfig", gone)
	if err == nil || !strings.Contains(out, "router schema pull: the schemas of the cluster cannot be read") {
		t.Error(err, out)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, text) {
		t.Error("the file is another one after a pull that failed", err)
	}
}

// TestSchemasOfTheCluster shows that `check -connect` and the start of the router check the fields
// of a custom resource against its definition. Without a cluster the fields are unknown, which is a
// warning.
func TestSchemasOfTheCluster(t *testing.T) {
	// Guarantee: typed-expressions
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, ns, gizmoDefinition)
	config := func(filter string) string {
		return routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`sinks: {out: {stdout: {}}}
sources:
  gizmos: {resource: example.org/v1/gizmos, namespaces: %s}
  pods: {resource: v1/pods}
routes:
  - {name: gizmos, from: gizmos, filter: %q, to: out}
  - {name: pods, from: pods, filter: 'list("gizmos").exists(g, g.spec.size == 1)', to: out}
`, ns, filter))
	}
	check := func(file string, args ...string) string {
		out, _ := routertest.Command(append([]string{"check", "-config", file}, args...)...).CombinedOutput()
		return string(out)
	}
	const mistake = `org.example.v1.Gizmo.spec has no field "sise"; did you mean "size"?`
	wrong, right := config("object.spec.sise == 1"), config("object.spec.size == 1")
	// The definition may have been published a moment ago.
	routertest.Poll(t, "the mistake to be found", func() bool { return strings.Contains(check(wrong, "-connect"), mistake) })
	if out := check(wrong); !strings.Contains(out, ": ok") || !strings.Contains(out, "warning: sources.gizmos.resource: the schema of example.org/v1/gizmos is unknown") {
		t.Errorf("without a cluster: %s", out)
	}
	if out := check(right, "-connect"); !strings.Contains(out, ": ok") || strings.Contains(out, "is unknown") {
		t.Errorf("with a cluster: %s", out)
	}
	if out, err := routertest.Command("-config", wrong).CombinedOutput(); err == nil || !strings.Contains(string(out), mistake) {
		t.Errorf("the router started: %v %s", err, out)
	}
	r := routertest.StartFile(t, right)
	r.Ready(t)
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: small}\nspec: {size: 2}\n---\n")
	s.Apply(t, ns, "apiVersion: example.org/v1\nkind: Gizmo\nmetadata: {name: g}\nspec: {size: 1}\n---\n")
	r.Expect(t, "gizmos added "+ns+"/g")
}

// TestUnknownResources shows that check -connect suggests the most likely resource of the cluster,
// including custom ones, for an unknown resource. Without a similar one it is a warning: the
// cluster may have it later.
func TestUnknownResources(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, ns, gizmoDefinition)
	file := routertest.Install(t, s.Kubeconfig(), fmt.Sprintf(`sinks: {out: {stdout: {}}}
sources:
  deployments: {resource: v1/deployments, namespaces: %[1]s}
  gizmos: {resource: example.org/v1/gizmoss, namespaces: %[1]s}
  mistyped: {resource: apps/v1/deploymnts, namespaces: %[1]s}
  others: {resource: example.org/v1/others, namespaces: %[1]s}
  secret: {resource: v1/secret, namespaces: %[1]s}
routes:
  - {name: r, from: [deployments, gizmos, mistyped, others, secret], to: out}
`, ns))
	var said string
	routertest.Poll(t, "the definition to be published", func() bool { // published a moment ago
		var code int
		if _, said, code = checkConnect(t, file); code != 2 {
			t.Fatalf("exit code %d: %s", code, said)
		}
		return strings.Contains(said, "there is no example.org/v1/gizmoss")
	})
	for _, want := range []string{
		`sources.deployments.resource: there is no v1/deployments; did you mean "apps/v1/deployments"?`,
		`sources.gizmos.resource: there is no example.org/v1/gizmoss; did you mean "example.org/v1/gizmos"?`,
		`sources.mistyped.resource: there is no apps/v1/deploymnts; did you mean "apps/v1/deployments"?`,
		`warning: sources.others.resource: the schema of example.org/v1/others is unknown`,
		`the cluster does not have it (yet)`,
		`sources.secret.resource: there is no v1/secret; did you mean "v1/secrets"?`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}
