package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestPulledSchemas: what `schema pull` has saved lets check, test, explain and eval know a custom resource without its cluster, by a flag
// or as the configuration says; nothing but names and types is in the file, and what cannot be pulled leaves it as it was.
func TestPulledSchemas(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
			t.Fatal(err)
		}
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
	cases := write("config_test.yaml", "cases: [{name: one, given: {deltas: [{added: {metadata: {namespace: d, name: g}, spec: {size: 1}}}]}, expect: [{route: r}]}]\n")
	for _, c := range []struct {
		name, key, field string
		args             []string
		fails            bool
		want             string
	}{
		{"check, not told", "", "sise", []string{"check", "-config", "FILE"}, false, "router schema pull saves what it says"},
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
	if err == nil || !strings.Contains(out, "router schema pull: the cluster does not say what its resources look like") {
		t.Error(err, out)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, text) {
		t.Error("the file is another one after a pull that failed", err)
	}
}
