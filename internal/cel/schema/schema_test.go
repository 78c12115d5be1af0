package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// at follows fields, [] and {}.
func at(t testing.TB, of *schema.Type, path string) *schema.Type {
	t.Helper()
	for step := range strings.FieldsSeq(strings.ReplaceAll(path, ".", " ")) {
		switch step {
		case "[]", "{}":
			of = of.Elem
		default:
			of = of.Fields[step].Type
		}
		if of == nil {
			t.Fatalf("%s: there is no %s", path, step)
		}
	}
	return of
}

func TestBuiltin(t *testing.T) {
	set, err := schema.Builtin()
	must.Succeed(t, err)
	for _, c := range []struct {
		group, version, resource, path string
		kind                           schema.Kind
	}{
		{"", "v1", "pods", "metadata.creationTimestamp", schema.Timestamp},
		{"", "v1", "pods", "metadata.labels.{}", schema.String},
		{"", "v1", "pods", "spec.containers.[].ports.[].containerPort", schema.Int},
		{"", "v1", "pods", "spec.containers.[].resources.limits.{}", schema.String},
		{"", "v1", "pods", "spec.containers.[].livenessProbe.httpGet.port", schema.IntOrString},
		{"", "v1", "pods", "metadata.managedFields.[].fieldsV1", schema.Any},
		{"", "v1", "secrets", "data.{}", schema.Bytes},
		{"", "v1", "secrets", "immutable", schema.Bool},
		{"apps", "v1", "deployments", "spec.strategy.rollingUpdate.maxSurge", schema.IntOrString},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "spec.versions.[].schema.openAPIV3Schema.maximum", schema.Double},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "spec.versions.[].schema.openAPIV3Schema.properties.{}.properties.{}.items", schema.Any},
	} {
		r, ok := set.Resource(c.group, c.version, c.resource)
		if !ok {
			t.Errorf("there is no %s", c.resource)
		} else if got := at(t, r.Type, c.path); got.Kind != c.kind {
			t.Errorf("%s.%s is of kind %d, want %d", c.resource, c.path, got.Kind, c.kind)
		}
	}
	pods, _ := set.Resource("", "v1", "pods")
	nodes, _ := set.Resource("", "v1", "nodes")
	if !pods.Namespaced || nodes.Namespaced || pods.Kind != "Pod" || pods.Type.Name != "core.v1.Pod" {
		t.Errorf("%+v %+v", pods, nodes)
	}
	if list := at(t, pods.Type, "spec.containers"); list.ListType != "map" || list.Keys[0] != "name" || !pods.Type.Fields["spec"].Type.Fields["containers"].Required {
		t.Errorf("%+v", list)
	}
	if m := pods.Type.Metadata(); len(m.Fields) != 3 || m.Fields["metadata"].Type != pods.Type.Fields["metadata"].Type {
		t.Errorf("%+v", m)
	}
	if _, ok := set.Resource("", "v1", "pod"); ok {
		t.Error("a resource is found by half its name")
	}
}

// widgets is an API server's description of a custom resource.
const widgets = `{"paths": {
  "/apis/example.com/v1/widgets": {"get": {"x-kubernetes-action": "list", "x-kubernetes-group-version-kind": {"group": "example.com", "kind": "Widget", "version": "v1"}}},
  "/apis/example.com/v1/namespaces/{namespace}/widgets": {"get": {"x-kubernetes-action": "list", "x-kubernetes-group-version-kind": {"group": "example.com", "kind": "Widget", "version": "v1"}}},
  "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}": {"get": {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": {"group": "example.com", "kind": "Widget", "version": "v1"}}}},
 "components": {"schemas": {
  "com.example.v1.Widget": {"type": "object", "required": ["spec"], "x-kubernetes-group-version-kind": [{"group": "example.com", "kind": "Widget", "version": "v1"}],
   "properties": {"apiVersion": {"type": "string"}, "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
    "spec": {"type": "object", "properties": {
     "ratio": {"type": "number"}, "every": {"type": "string", "format": "duration"}, "day": {"type": "string", "format": "date"},
     "port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
     "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "any": {"x-kubernetes-preserve-unknown-fields": true},
     "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
     "maybe": {"type": "array", "items": {"type": "string", "nullable": true}},
     "open": {"type": "object", "additionalProperties": true}, "closed": {"type": "object", "additionalProperties": false},
     "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}},
  "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "properties": {"name": {"type": "string"}}}}}}`

func TestParse(t *testing.T) {
	set, err := schema.Parse([]byte(widgets))
	must.Succeed(t, err)
	r, ok := set.Resource("example.com", "v1", "widgets")
	if !ok || !r.Namespaced || r.Kind != "Widget" || set.Len() != 1 || r.Type.Name != "com.example.v1.Widget" {
		t.Fatalf("%+v", r)
	}
	for path, kind := range map[string]schema.Kind{
		"spec.ratio": schema.Double, "spec.every": schema.Duration, "spec.day": schema.Date, "spec.port": schema.IntOrString,
		"spec.free": schema.Any, "spec.any": schema.Any, "spec.parts.[].name": schema.String, "spec.maybe.[]": schema.String,
		"spec.open.{}": schema.Any, "spec.closed": schema.Any, "spec.pod.metadata.name": schema.String, "metadata.name": schema.String,
	} {
		if got := at(t, r.Type, path); got.Kind != kind {
			t.Errorf("%s is of kind %d, want %d", path, got.Kind, kind)
		}
	}
	if !at(t, r.Type, "spec.maybe.[]").Nullable || at(t, r.Type, "spec.parts.[]").Name != "com.example.v1.Widget.spec.parts" || !r.Type.Fields["spec"].Required {
		t.Errorf("%+v", r.Type)
	}
	for _, broken := range []string{"", "{}", "[]", `{"components": 1}`} {
		if _, err := schema.Parse([]byte(broken)); err == nil {
			t.Errorf("%q is no OpenAPI document", broken)
		}
	}
}

// FuzzSet shows that a set keeps its form after writing and reading, and that no input makes a
// reader panic.
func FuzzSet(f *testing.F) {
	f.Add(widgets)
	set, err := schema.Parse([]byte(widgets))
	must.Succeed(f, err)
	text, err := json.Marshal(set)
	must.Succeed(f, err)
	f.Add(string(text))
	f.Add(`{"resources": {"v1/a": {"kind": "A", "type": "@a"}}, "types": {"a": {"b": "![map:k,l]?{}@a"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		set, err := schema.Parse([]byte(text))
		if err != nil {
			set = &schema.Set{}
			if json.Unmarshal([]byte(text), set) != nil {
				return
			}
		}
		first, err := json.Marshal(set)
		must.Succeed(t, err)
		again := &schema.Set{}
		if err := json.Unmarshal(first, again); err != nil {
			// names that a resource or a type cannot have, such as two types of one name
			t.Skip(err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(first) != string(second) {
			t.Errorf("%v\n%s\n%s", err, first, second)
		}
	})
}
