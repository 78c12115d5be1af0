package filters_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// typedKinds are resources with built-in schemas. Each has conditions that are valid for its
// objects only, and JSON of their parts.
func typedKinds() map[string]typedKind {
	return map[string]typedKind{
		"pods": {group: "", version: "v1", conditions: []string{
			`object.spec.nodeName == "a"`, `object.spec.nodeName in ["a", "b"]`, `object.spec.priority == 1`, `object.spec.hostNetwork`,
			`object.spec.hostNetwork == true`, `object.?spec.nodeName.orValue("b") == "b"`, `object.spec.containers.exists(c, c.name == "a")`,
			`has(object.spec.nodeName)`, `oldObject.spec.nodeName == "a"`, `changed("spec.nodeName")`, `object.spec.priority in [1, 2]`,
			`object.status.startTime > timestamp("2026-01-01T00:00:00Z")`, `object.spec.nodeName == object.metadata.name`,
		}, fields: []string{
			`"nodeName":"a"`, `"nodeName":"b"`, `"nodeName":1`, `"nodeName":null`, `"priority":1`, `"priority":2.0`, `"priority":"1"`,
			`"hostNetwork":true`, `"hostNetwork":"true"`, `"containers":[{"name":"a"}]`, `"containers":{}`,
		}},
		"nodes": {group: "", version: "v1", conditions: []string{
			`object.spec.unschedulable`, `object.spec.unschedulable == false`, `object.spec.podCIDR == "a"`, `!has(object.spec.podCIDR)`,
			`object.spec.taints.exists(t, t.key == "a")`, `object.spec.podCIDR in ["a", "b"]`, `object.spec.podCIDR != "a"`,
		}, fields: []string{`"unschedulable":true`, `"unschedulable":0`, `"podCIDR":"a"`, `"podCIDR":["a"]`, `"podCIDR":null`, `"taints":[{"key":"a"}]`}},
		"deployments": {group: "apps", version: "v1", conditions: []string{
			`object.spec.replicas == 1`, `object.spec.replicas in [1, 2]`, `object.spec.replicas > 1`, `object.spec.paused`, `!object.spec.paused`,
			`object.?spec.replicas.orValue(1) == 1`, `object.spec.strategy.type == "a"`, `has(object.spec.paused)`, `object.spec.selector.matchLabels["app"] == "a"`,
		}, fields: []string{
			`"replicas":1`, `"replicas":2`, `"replicas":1.0`, `"replicas":"1"`, `"replicas":null`, `"paused":true`, `"paused":null`,
			`"strategy":{"type":"a"}`, `"strategy":"a"`, `"selector":{"matchLabels":{"app":"a"}}`,
		}},
		"configmaps": {group: "", version: "v1", conditions: []string{
			`object.data["a"] == "a"`, `object.data.a in ["a", "b"]`, `object.immutable`, `"a" in object.data`, `object.?data.a.orValue("") == "a"`,
		}, fields: []string{}, top: []string{`"data":{"a":"a"}`, `"data":{"a":1}`, `"data":{}`, `"data":null`, `"immutable":true`, `"immutable":1`}},
	}
}

type typedKind struct {
	group, version string
	conditions     []string // of filters over it alone
	fields, top    []string // of spec, and of the object
}

// common are conditions for objects of any kind.
func common() []string {
	return []string{
		`object.metadata.namespace == "a"`, `object.metadata.namespace in ["b", "c"]`, `object.metadata.labels["app"] == "a"`,
		`object.metadata.labels.app in ["a", "b"]`, `object.?metadata.labels.app.orValue("b") == "b"`, `op == "updated"`, `source == "pods"`,
		`source in ["nodes", "deployments"]`, `has(object.metadata.labels)`, `object.metadata.generation == 1`, `object.metadata.name.startsWith("x")`,
		`object.metadata.creationTimestamp > timestamp("2026-01-01T00:00:00Z")`, `changed("metadata.labels")`, `inTeam`, `oldObject.metadata.generation == 1`,
	}
}

func typed(t testing.TB) *world {
	t.Helper()
	builtin, err := schema.Builtin()
	must.Succeed(t, err)
	kinds := typedKinds()
	cfg := cel.EnvConfig{
		Cluster: "c", Sources: map[string][]string{}, Types: map[string]*schema.Type{},
		Define: map[string]string{"inTeam": `object.metadata.namespace == "a" && object.metadata.generation == 1`},
	}
	w := &world{}
	for name, kind := range kinds {
		resource, ok := builtin.Resource(kind.group, kind.version, name)
		if !ok {
			t.Fatal(name)
		}
		w.sources = append(w.sources, name)
		cfg.Sources[name], cfg.Types[name] = nil, resource.Type
	}
	slices.Sort(w.sources)
	w.env, err = cel.NewEnv(cfg)
	must.Succeed(t, err)
	w.conditions = func(sources []string) []string {
		if len(sources) > 1 {
			return common()
		}
		own := kinds[sources[0]].conditions
		return slices.Concat(common(), own, own)
	}
	w.object = func(t testing.TB, rt *rapid.T, source string) *event.Object { return drawTyped(t, rt, kinds[source]) }
	return w
}

// drawTyped generates an object that its schema allows, or almost allows.
func drawTyped(t testing.TB, rt *rapid.T, kind typedKind) *event.Object {
	t.Helper()
	text := fmt.Sprintf(`{"metadata":{"name":"x","namespace":%q`, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "namespace"))
	pick := func(from []string) (fields string) {
		byName := map[string][]string{}
		for _, field := range from {
			name, _, _ := strings.Cut(field, ":")
			byName[name] = append(byName[name], field)
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			if n := rapid.IntRange(-1, len(byName[name])-1).Draw(rt, name); n >= 0 {
				fields += "," + byName[name][n]
			}
		}
		return fields
	}
	text += pick([]string{`"labels":{"app":"a"}`, `"labels":{"app":2}`, `"generation":1`, `"creationTimestamp":"2026-02-03T04:05:06Z"`}) + "}"
	text += pick(kind.top)
	if spec := pick(kind.fields); spec != "" {
		text += `,"spec":{` + spec[1:] + `}`
	}
	o, err := event.ParseObject(&event.Resource{Cluster: "c"}, text+"}")
	must.Succeed(t, err)
	return o
}

// TestTypedTableAgrees: a table of typed filters agrees too. Some of them have sources of several
// types.
func TestTypedTableAgrees(t *testing.T) { rapid.Check(t, checkTable(t, typed(t))) }
