package compile_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestApplies shows when two routes count as writers of one field, and that a route which applies
// one object for many is named.
func TestApplies(t *testing.T) {
	const fanIn = `{"apply": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "all", "namespace": object.metadata.namespace}, "data": `
	for name, c := range map[string]struct {
		one, other string // emits of routes for ConfigMaps
		from, to   string // of the second route
		want       string // part of the only warning; empty: there is none
	}{
		"one field": {
			`{"apply": {"metadata": {"annotations": {"a": op}}}}`, `{"apply": {"metadata": {"annotations": {"b": "1", "a": "2"}}}}`, "", "",
			`route "r1" also writes metadata.annotations.a of these objects`,
		},
		"other fields": {`{"apply": {"metadata": {"annotations": {"a": op}}}}`, `{"apply": {"metadata": {"annotations": {"b": op}}}}`, "", "", ""},
		"a field and a map": {
			`{"apply": {"metadata": {"annotations": {"a": op}}}}`, `{"apply": {"metadata": {"annotations": object.data}}}`, "", "",
			`route "r1" also writes metadata.annotations.a`,
		},
		"the same text":      {`{"apply": {"data": {"a": "1"}}}`, `{"apply": {"data": {"a": "1"}}}`, "", "", ""},
		"a merge":            {`{"apply": {"data": {"a": "1"}}}`, `{"merge": {"data": {"a": "2"}}}`, "", "", `route "r1" also writes data.a`},
		"two merges":         {`{"merge": {"data": {"a": "1"}}}`, `{"merge": {"data": {"a": "2"}}}`, "", "", ""},
		"another sink":       {`{"apply": {"data": {"a": "1"}}}`, `{"apply": {"data": {"a": "2"}}}`, "", "team", `route "r1" also writes data.a`},
		"another cluster":    {`{"apply": {"data": {"a": "1"}}}`, `{"apply": {"data": {"a": "2"}}}`, "", "there", ""},
		"other namespaces":   {`{"apply": {"data": {"a": "1"}}}`, `{"apply": {"data": {"a": "2"}}}`, "others", "", ""},
		"one named object":   {fanIn + `{"a": op}}}`, fanIn + `{"a": op}}}`, "", "", `route "r1" also writes data.a`},
		"an object for many": {fanIn + `{"a": op}}}`, fanIn + `{object.metadata.name: op}}}`, "", "", "each apply removes the keys of the one before"},
		"a whole object":     {fanIn + `{"a": op}}}`, fanIn + `list("maps").transformMapEntry(_, m, {m.metadata.name: "x"})}}`, "", "", `also writes data`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer("ONE", c.one, "OTHER", c.other, "FROM", cmp.Or(c.from, "maps"), "TO", cmp.Or(c.to, "out")).Replace(`version: 1
sources:
  maps: {resource: v1/configmaps, namespaces: [a, b]}
  others: {resource: v1/configmaps, namespaces: [c]}
sinks:
  out: {kubernetes: {allow: [{resource: v1/configmaps, verbs: [apply, merge]}]}}
  team: {kubernetes: {allow: [{resource: v1/configmaps, verbs: [apply, merge]}]}}
  there: {kubernetes: {kubeconfig: /there, allow: [{resource: v1/configmaps, verbs: [apply, merge]}]}}
routes:
  - {name: r1, from: maps, emit: 'ONE', to: out}
  - {name: r2, from: FROM, emit: 'OTHER', to: TO}
`)
			file := filepath.Join(t.TempDir(), "config.yaml")
			must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
			found := check.File(t.Context(), file, compile.Components{Sinks: []plugins.SinkKind{kubernetes.Kind()}, Emit: emit.New}, check.Options{})
			if len(found.Problems) > 0 {
				t.Fatal(found.Problems)
			}
			var said []string
			for _, w := range found.Warnings {
				if strings.Contains(w.Message, "appl") {
					said = append(said, w.Message)
				}
			}
			if len(said) > 1 || len(said) == 1 != (c.want != "") || !strings.Contains(strings.Join(said, ""), c.want) {
				t.Errorf("got %q, want %q", said, c.want)
			}
		})
	}
}
