package cel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestObjects: the result of an expression is objects of the declared sources; anything else is a
// mistake.
func TestObjects(t *testing.T) {
	eachMode(t, func(t *testing.T, env *cel.Env, typed bool) {
		node := object(t, `{"metadata": {"name": "n1", "labels": {"a": "b"}}}`)
		pod := func(name string) *event.Object {
			return object(t, `{"metadata": {"namespace": "shop", "uid": "u-`+name+`", "name": "`+name+`"}, "spec": {"nodeName": "n1"}}`)
		}
		in := cel.Input{Delta: &event.Delta{Source: "nodes", Op: event.Updated, Old: node, New: node}, Cache: cache{
			"pods/byNode/n1": {pod("a"), pod("b")}, "pods//": {pod("a"), pod("c")}, "nodes//": {node},
		}}
		for text, want := range map[string]string{
			`lookup("pods.byNode", object.metadata.name)`:                                   "shop/a u-a, shop/b u-b",
			`lookup("pods.byNode", object.metadata.name).filter(p, p.metadata.name != "a")`: "shop/b u-b",
			`list("pods") + lookup("pods.byNode", "n1")`:                                    "shop/a u-a, shop/c u-c, shop/a u-a, shop/b u-b",
			`get("pods", "shop", "c")`:                                                      "shop/c u-c",
			`get("pods", "shop", "d")`:                                                      "",
			`op == "added" ? list("pods") : []`:                                             "",
			`[?optional.none(), get("pods", "shop", "a"), get("pods", "shop", "d")]`:        "shop/a u-a",
			`dyn(lookup("pods.byNode", object.metadata.labels["b"]))`:                       "absent",
			`dyn([1])`: "type",
			`[{"metadata": {"name": "x"}}].filter(m, true).map(m, dyn(m))`: "type",
			`[dyn(object.metadata)].filter(m, m.name == "")`:               "",
			`dyn(object.metadata.labels)`:                                  "type",
			`lookup("byNode", "x")`:                                        `compile: 1:8: source "nodes" has no index "byNode"`,
			`object.metadata.name`:                                         "compile",
			`"x"`:                                                          "compile: 1:1: the result must be objects that lookup, list or get has found, but it is of type string",
		} {
			got := objectsOf(t, env, text, in)
			if typed && text == `object.metadata.name` || !typed && want == "compile" {
				continue
			}
			if !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
		_, err := env.CompileObjects(nil, `lookup("name", "x")`, "nodes", "pods", "deployments")
		if typed == (err == nil) || typed && err.Error() != `1:1: these are objects of type core.v1.Node, not of pods or deployments; `+
			`an index is that of nodes unless its source stands before it, as in "pods.namespace"` {
			t.Error(err)
		}
		p, err := env.CompileObjects(nil, `lookup("pods.byNode", "x")`, "nodes", "pods")
		if err != nil || !slices.Equal(p.Sources(), []string{"pods"}) {
			t.Error(err)
		}
	})
}

func objectsOf(t *testing.T, env *cel.Env, text string, in cel.Input) string {
	t.Helper()
	p, err := env.CompileObjects(nil, text, "nodes", "pods")
	if err != nil {
		return "compile: " + err.Error()
	}
	refs, err := p.Objects(t.Context(), in)
	if err != nil {
		return kindOf(err)
	}
	var found []string
	for _, r := range refs {
		found = append(found, r.Key.String()+" "+r.UID)
	}
	return strings.Join(found, ", ")
}
