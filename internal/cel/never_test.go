package cel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/explain"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestNever(t *testing.T) {
	three := []event.Op{event.Added, event.Updated, event.Deleted}
	for _, c := range []struct {
		text   string
		domain explain.Domain
		want   string // place and the beginning of the reason; empty: it may match
	}{
		{`true`, explain.Domain{Ops: three}, ""},
		{`false`, explain.Domain{Ops: three}, "1:0 it is always false"},
		{`object.a == 1 && ("a" == "b")`, explain.Domain{Ops: three}, "1:17 it is always false"},
		{`[1, 2].exists(x, x == 3)`, explain.Domain{Ops: three}, ""}, // not folded
		{`object.a == 1 || false`, explain.Domain{Ops: three}, ""},
		{`object.a == 1 && object.b == 2`, explain.Domain{Ops: three}, ""},
		{`object.a == 1 && object.b == 2 && object.a == 2`, explain.Domain{Ops: three}, `1:34 it contradicts object.a == 1;`},
		// of another kind: the types decide that
		{`object.a == 1 && object.a == "1"`, explain.Domain{Ops: three}, ""},
		{`object.a in [1, 2] && object.a in [2, 3]`, explain.Domain{Ops: three}, ""},
		{`object.a in [1, 2] && object.a in [2, 3] && object.a == 1`, explain.Domain{Ops: three}, `1:44 it contradicts object.a in [1, 2]`},
		{`has(object.a) && !has(object.a)`, explain.Domain{Ops: three}, `1:17 it contradicts has(object.a)`},
		{`object.a && !object.a`, explain.Domain{Ops: three}, `1:12 it contradicts object.a`},
		{`object.?a.orValue("x") == "x" && object.?a.orValue("y") == "y"`, explain.Domain{Ops: three}, ""},
		{`object.a == 1 && oldObject.a == 2`, explain.Domain{Ops: three}, ""},
		{`op == "updated"`, explain.Domain{Ops: three}, ""},
		{`op in ["sync", "deselected"]`, explain.Domain{Ops: three}, "1:0 op is only added, updated, deleted; add deselected or sync to on"},
		{`source == "pods"`, explain.Domain{Ops: three}, ""},
		{`source == "nodes"`, explain.Domain{Ops: three}, "1:0 the source is pods; add nodes to from"},
		{`object.metadata.namespace == "c"`, explain.Domain{Ops: three}, ""},
		{`object.metadata.namespace == "c"`, explain.Domain{Ops: three, Namespaces: []string{"a", "b"}}, `1:0 source "pods" watches only the namespaces a, b`},
		{`object.metadata.namespace in ["b", "c"]`, explain.Domain{Ops: three, Namespaces: []string{"a", "b"}}, ""},
		{`oldObject.metadata.namespace == "c"`, explain.Domain{Ops: three, Namespaces: []string{"a", "b"}}, ""},
		{`changed("spec")`, explain.Domain{Ops: three}, ""},
		{`object.a == 1 && changed("spec")`, explain.Domain{Ops: []event.Op{event.Deleted, event.Sync}}, "1:17 changed() is always false for deleted, sync"},
		{`!changed("spec")`, explain.Domain{Ops: []event.Op{event.Deleted}}, ""},
		{`changed("spec") || object.a == 1`, explain.Domain{Ops: []event.Op{event.Deleted}}, ""},
		{`changed("spec")`, explain.Domain{Ops: []event.Op{event.Added}}, ""},
	} {
		x, err := explain.New(environment(t), c.text, cel.Filter, "pods")
		if err != nil {
			t.Fatal(c.text, err)
		}
		got := ""
		if never, ok := x.Never(t.Context(), c.domain); ok {
			got = fmt.Sprintf("%d:%d %s", never.Line, never.Column, never.Reason)
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
}

// TestNeverIsTrue: a filter that Never reports matches no delta of the domain.
func TestNeverIsTrue(t *testing.T) {
	env := environment(t)
	conditions := []string{
		`true`, `1 == 2`, `object.a == 1`, `object.a == 2`, `object.a in [1, 2]`, `2 == object.a`, `has(object.a)`, `!has(object.a)`, `object.?a.orValue(1) == 1`,
		`object.?a.orValue(2) == 2`, `object.a != 1`, `op == "added"`, `op in ["updated", "deleted"]`, `source == "pods"`, `source == "nodes"`,
		`object.metadata.namespace == "a"`, `object.metadata.namespace == "b"`, `changed("a")`, `!changed("a")`, `oldObject.a == 1`,
	}
	ops := []event.Op{event.Added, event.Updated, event.Deleted, event.Deselected, event.Sync}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(conditions), 1, 4).Draw(rt, "conditions"), rapid.SampledFrom([]string{" && ", " && ", " || "}).Draw(rt, "join"))
		domain := explain.Domain{
			Ops:        rapid.SliceOfNDistinct(rapid.SampledFrom(ops), 1, 3, rapid.ID).Draw(rt, "ops"),
			Namespaces: rapid.SampledFrom([][]string{nil, {"a"}, {"a", "c"}}).Draw(rt, "namespaces"),
		}
		x, err := explain.New(env, text, cel.Filter, "pods")
		if err != nil {
			rt.Fatal(text, err)
		}
		if _, ok := x.Never(t.Context(), domain); !ok {
			return
		}
		p, err := env.Compile(text, cel.Filter, "pods")
		must.Succeed(rt, err)
		for _, op := range domain.Ops {
			for _, namespace := range []string{"a", "b", "c"} {
				if domain.Namespaces != nil && !slices.Contains(domain.Namespaces, namespace) {
					continue
				}
				for _, a := range []string{"", `,"a":1`, `,"a":2`} {
					for _, was := range []string{"", `,"a":1`} {
						state := func(a string) *event.Object {
							return object(t, `{"metadata":{"name":"n","namespace":"`+namespace+`","uid":"u","resourceVersion":"1"}`+a+`}`)
						}
						d := &event.Delta{Source: "pods", Op: op, New: state(a)}
						switch op {
						case event.Deleted, event.Deselected:
							d.New, d.Old = nil, d.New
						case event.Updated:
							d.Old = state(was)
						default:
						}
						if matches, err := p.Match(t.Context(), cel.Input{Delta: d}); err == nil && matches {
							rt.Fatalf("%s matches %v %s", text, d, a)
						}
					}
				}
			}
		}
	})
}
