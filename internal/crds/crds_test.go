package crds_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// configuration has the components that the routes of testdata name.
const configuration = `
version: 1
state: {dir: ./state}
sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
handlers: {h: {wasm: {module: ./h.wasm}}}
sinks: {out: {stdout: {}}, hook: {stdout: {}}}
customResources: {routes: {namespaces: ["*"], sources: [pods, nodes], sinks: [out, hook], handlers: [h]}}
`

// mistake is a spec that a rule rejects.
type mistake struct {
	Path, Message string
	Spec          map[string]any
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	must.Succeed(t, err)
	object, err := manifest.ToJSON([]byte("all:\n" + string(text)))
	must.Succeed(t, err)
	var all struct{ All json.RawMessage }
	must.Succeed(t, json.Unmarshal(object, &all))
	must.Succeed(t, json.Unmarshal(all.All, into))
}

// problemsOf returns the problems of a spec that the router reports.
func problemsOf(t *testing.T, spec map[string]any) config.Problems {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "r", "namespace": "ns"}, "spec": spec})
	must.Succeed(t, err)
	f := &config.Fragment{Name: "route/r -n ns", Data: text, Object: &config.ObjectRef{Namespace: "ns", Name: "r"}}
	_, problems := config.Parse("config.yaml", []byte(configuration), config.Policy{}, f)
	return append(problems, f.Located(f.Problems)...)
}

// TestRulesAgree shows that the router rejects the same routes as the rules, at the same key.
func TestRulesAgree(t *testing.T) {
	var mistakes []mistake
	read(t, "rules.yaml", &mistakes)
	for _, m := range mistakes {
		if !slices.ContainsFunc(problemsOf(t, m.Spec), func(p config.Problem) bool { return strings.HasPrefix(p.Path, "spec."+m.Path) }) {
			t.Errorf("%s: %v: got %v", m.Path, m.Spec, problemsOf(t, m.Spec))
		}
	}
	var valid []map[string]any
	read(t, "valid.yaml", &valid)
	for _, spec := range valid {
		if problems := problemsOf(t, spec); len(problems) > 0 {
			t.Errorf("%v: got %v", spec, problems)
		}
	}
}

// TestRulesHaveCases shows that each rule of the schema has a case, and that the valid routes have
// each key.
func TestRulesHaveCases(t *testing.T) {
	var mistakes []mistake
	read(t, "rules.yaml", &mistakes)
	rules := 0
	walk("", specOf(t), func(path string, s map[string]any) {
		all, _ := s["x-kubernetes-validations"].([]any)
		for _, r := range all {
			rule, _ := r.(map[string]any)
			field, _ := rule["fieldPath"].(string)
			at := strings.TrimPrefix(path+field, ".")
			rules++
			if !slices.ContainsFunc(mistakes, func(m mistake) bool {
				return strings.HasPrefix(m.Path, at) && strings.Contains(fmt.Sprint(rule["message"]), m.Message)
			}) {
				t.Errorf("no case for %s: %s", at, rule["message"])
			}
		}
	})
	if rules < 30 {
		t.Errorf("found only %d rules", rules)
	}
	var valid []map[string]any
	read(t, "valid.yaml", &valid)
	walk("", specOf(t), func(path string, s map[string]any) {
		if !slices.ContainsFunc(valid, func(spec map[string]any) bool { return has(spec, path) }) {
			t.Errorf("no valid route has %s", path)
		}
		if d, _ := s["description"].(string); path != "" && !strings.HasSuffix(d, ".") {
			t.Errorf("%s has no description", path)
		}
	})
}

// TestKeys shows that the spec has the keys of a route in the configuration, without its name, its
// id and its workers.
func TestKeys(t *testing.T) {
	properties, _ := specOf(t)["properties"].(map[string]any)
	for _, f := range tags.Of(reflect.TypeFor[config.Route]()) {
		if _, ok := properties[f.Key]; ok == (f.Self || f.Key == "name" || f.Key == "id" || f.Key == "workers") {
			t.Errorf("%s: %v", f.Key, ok)
		}
	}
}

// TestDeployed shows that deploy/crds is generated, and that the result is always the same.
func TestDeployed(t *testing.T) {
	deployed, err := os.ReadFile("../../deploy/crds/crds.yaml")
	must.Succeed(t, err)
	text, err := crds.Manifests()
	must.Succeed(t, err)
	if !bytes.Equal(deployed, text) {
		t.Error("deploy/crds/crds.yaml is old: run make generate")
	}
}

// specOf returns the schema of the spec, which is the same of both resources.
func specOf(t *testing.T) map[string]any {
	t.Helper()
	text, err := crds.Manifests()
	must.Succeed(t, err)
	documents, err := manifest.Objects(text)
	must.Succeed(t, err)
	var specs []map[string]any
	for _, document := range documents {
		var d struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema struct{ Properties struct{ Spec map[string]any } }
					}
				}
			}
		}
		must.Succeed(t, json.Unmarshal(document, &d))
		specs = append(specs, d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec)
	}
	if len(specs) != 2 || !reflect.DeepEqual(specs[0], specs[1]) || len(specs[0]) == 0 {
		t.Fatal("the specs of the two resources differ")
	}
	return specs[0]
}

// walk calls visit with each schema of a key below s.
func walk(path string, s map[string]any, visit func(path string, s map[string]any)) {
	visit(path, s)
	properties, _ := s["properties"].(map[string]any)
	for key, p := range properties {
		if child, ok := p.(map[string]any); ok {
			walk(path+"."+key, child, visit)
		}
	}
}

// has reports whether a spec has a value at a path.
func has(value any, path string) bool {
	for key := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		if key == "" {
			continue
		}
		m, _ := value.(map[string]any)
		if value = m[key]; value == nil {
			return false
		}
	}
	return true
}
