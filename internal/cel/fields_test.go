package cel_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// fieldsText shows the fields that a program reads: source: field field, source: field.
func fieldsText(p *cel.Program, of ...string) string {
	var parts []string
	all := cel.Fields(p, of...)
	for _, source := range slices.Sorted(maps.Keys(all)) {
		text := "*"
		if !all[source].IsWhole() {
			text = strings.Join(all[source].Paths(), " ")
		}
		parts = append(parts, strings.TrimSpace(source+": "+text))
	}
	return strings.Join(parts, ", ")
}

// reduced returns the object with the fields of a set, as a cache keeps it.
func reduced(t *testing.T, o *event.Object, set kept.Set) *event.Object {
	t.Helper()
	if o == nil || set.IsWhole() {
		return o
	}
	return object(t, string(set.Or(kept.Identity()).Selection().Append(nil, string(o.Raw()))))
}

// TestFields compares the fields that expressions read with the table, and the results with those
// over objects that have no other fields.
func TestFields(t *testing.T) {
	cfg := typedConfig(t, map[string]string{
		"statuses": `object.status.containerStatuses`,
		"crashing": `statuses.exists(c, c.?state.waiting.reason.orValue("") == "CrashLoopBackOff")`,
		"node":     `get("nodes", "", object.spec.nodeName)`,
		"team":     `{"name": object.metadata.labels.team, "app": object.metadata.labels["app"]}`,
	})
	cfg.Owners = map[string]cel.Owner{"deployments": {Group: "apps", Kind: "Deployment", Resource: "deployments"}}
	env, err := cel.NewEnv(cfg)
	must.Succeed(t, err)
	for _, test := range []struct{ source, text, want string }{
		{"pods", `object.status.phase == "Running"`, "pods: status.phase"},
		{"pods", `dyn(object)["status"]["phase"] == "Running" && object.metadata.name != "x"`, "pods: status.phase"},
		{"pods", `oldObject.spec.nodeName != object.spec.nodeName`, "pods: spec.nodeName"},
		{"pods", `has(object.metadata.deletionTimestamp)`, "pods: metadata.deletionTimestamp"},
		{"pods", `has(object.status) && object.status.phase == "x"`, "pods: status.phase"},
		{"pods", `has(object.status.conditions)`, "pods: status.conditions"},
		{"pods", `object.metadata.?namespace.orValue("") == "x" && object.metadata.__namespace__ == "x"`, "pods: metadata.__namespace__"},
		{"pods", `object.metadata.labels.?team.orValue("none") == "a"`, "pods: metadata.labels.team"},
		{"pods", `object.?metadata.?labels[?"a.b/c"].hasValue()`, `pods: metadata.labels["a.b/c"]`},
		{"pods", `object.metadata.?labels.optMap(l, l["app"]).orValue("") == "web"`, "pods: metadata.labels.app"},
		{"pods", `"app" in object.metadata.labels`, "pods: metadata.labels"},
		{"pods", `object.metadata.labels.exists(k, k == "app")`, "pods: metadata.labels"},
		{"pods", `object.metadata.labels.all(k, v, v != "")`, "pods: metadata.labels"},
		{"pods", `object.metadata.labels[object.spec.nodeName] == "x"`, "pods: metadata.labels spec.nodeName"},
		{"pods", `object.spec.containers.exists(c, c.image.startsWith("i:"))`, "pods: spec.containers.image"},
		{"pods", `object.spec.containers.exists(i, c, i > 0 && c.name == "b")`, "pods: spec.containers.name"},
		{"pods", `object.spec.containers.all(c, c.ports.exists(p, p.containerPort == 80))`, "pods: spec.containers.ports.containerPort"},
		{"pods", `object.spec.containers[0].image == "i:1" && object.spec.containers[?5].hasValue()`, "pods: spec.containers.image"},
		{"pods", `size(object.spec.containers) == 2 && object.spec.containers.size() == 2`, "pods: spec.containers"},
		{"pods", `object.spec.containers.filter(c, c.name == "a").size() == 1`, "pods: spec.containers.name"},
		{"pods", `object.spec.containers.filter(c, c.name == "a").map(c, c.image) == ["i:1"]`, "pods: spec.containers.image spec.containers.name"},
		{"pods", `object.spec.containers.filter(c, c.name == "a")[0].image == "i:1"`, "pods: spec.containers.image spec.containers.name"},
		{"pods", `object.spec.containers.map(c, [c]).map(l, l[0].image) == ["i:1", "i:2"]`, "pods: spec.containers.image"},
		{"pods", `(object.spec.containers + object.spec.initContainers).exists(c, c.name == "a")`, "pods: spec.containers.name spec.initContainers.name"},
		{"pods", `(op == "added" ? object : oldObject).status.phase == "Running"`, "pods: status.phase"},
		{"pods", `[object, oldObject].exists(o, o != null && o.status.phase == "x")`, "pods: status.phase"},
		{"pods", `cel.bind(s, object.status, s.phase == "Running" && s.?podIP.orValue("") == "")`, "pods: status.phase status.podIP"},
		{"pods", `crashing && statuses[0].restartCount > 3`, "pods: status.containerStatuses.restartCount status.containerStatuses.state.waiting.reason"},
		{"pods", `team.name == "a"`, "pods: metadata.labels.app metadata.labels.team"},
		{"pods", `object == oldObject`, "pods: *"},
		{"pods", `oldObject != null && null == oldObject`, "pods:"},
		{"pods", `dyn(object).spec.nodeName == "n1"`, "pods: spec.nodeName"},
		{"pods", `dyn(object).spec.containers.exists(c, c.name == "a")`, "pods: spec.containers"},
		{"pods", `dyn(object).spec.map(k, k).size() > 1`, "pods: spec"},
		{"pods", `type(object.spec.nodeName) == string && string(object.status.phase) != ""`, "pods: spec.nodeName status.phase"},
		{"pods", `changed("status.phase") || changed("spec.containers[*].image") || changed("metadata.labels.app")`, "pods: metadata.labels.app spec.containers status.phase"},
		{"pods", `diff(oldObject.spec, object.spec).size() > 0`, "pods: spec"},
		{"pods", `diff(oldObject, object).size() > 0`, "pods: *"},
		{"pods", `node.spec.unschedulable == true && node != null`, "nodes: spec.unschedulable, pods: spec.nodeName"},
		{"pods", `get("nodes", "", "n1") == null`, "nodes:"},
		{"pods", `list("nodes").map(n, n.metadata.name) == ["n1"] && list("nodes")[0].spec.unschedulable`, "nodes: spec.unschedulable"},
		{"pods", `lookup("byNode", object.spec.nodeName).exists(p, p.status.phase == "Failed")`, "pods: spec.nodeName status.phase"},
		{"pods", `lookup("byNode", "n1", 5).size() == 0 && count("owner", object.metadata.uid) == 0`, "pods: metadata.ownerReferences"},
		{"pods", `controller(object) == null`, "deployments: metadata.ownerReferences, pods: metadata.ownerReferences"},
		{"pods", `controller(object).object.spec.replicas == 1 && controller(object).kind == "Deployment"`, "deployments: metadata.ownerReferences spec.replicas, pods: metadata.ownerReferences"},
		{"pods", `op == "updated" && source == "pods"`, ""},
		{"widgets", `object.spec.size > 3 && object.spec.parts.all(p, p.ok)`, "widgets: spec.parts spec.size"},
		{"widgets", `object.spec.parts[0].name == "x" && object.spec.parts[op].name == "x"`, "widgets: spec.parts"},
		{"widgets", `object[op] == 1`, "widgets: *"},
	} {
		p, err := env.Compile(test.text, cel.Filter, test.source)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got := fieldsText(p, test.source); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.text, got, test.want)
		}
		for _, before := range []string{web, strings.Replace(web, "Running", "Failed", 1), `{"metadata": {"name": "web-0"}, "spec": {"parts": [{"ok": true}, {"ok": false}], "size": 4}}`} {
			whole := typedInput(t, test.source, before, web)
			few := typedInput(t, test.source, before, web)
			sets := cel.Fields(p, test.source)
			few.Delta.New, few.Delta.Old = reduced(t, whole.Delta.New, sets[test.source]), reduced(t, whole.Delta.Old, sets[test.source])
			for key, objects := range few.Cache.(cache) { //nolint:forcetypeassert // typedInput makes it
				objects[0] = reduced(t, objects[0], sets[strings.TrimSuffix(key, "//")])
			}
			want, wantErr := p.Match(t.Context(), whole)
			got, gotErr := p.Match(t.Context(), few)
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Errorf("%s: the fields give %v, %v\nthe whole objects %v, %v", test.text, got, gotErr, want, wantErr)
			}
		}
	}
}

// TestFieldsOfEmit: an event contains the whole values.
func TestFieldsOfEmit(t *testing.T) {
	cfg := typedConfig(t, nil)
	cfg.ManagedFields = map[string]bool{"pods": true}
	env, err := cel.NewEnv(cfg)
	must.Succeed(t, err)
	for _, test := range []struct{ text, want string }{
		{`{"name": object.metadata.name, "spec": oldObject.?spec}`, "pods: spec"},
		{`object`, "pods: *"},
		{`event({"a": object.status.phase}).withSubject(object.spec.nodeName)`, "pods: spec.nodeName status.phase"},
		{`objects.map(o, {"p": o.status.phase})`, "pods: status.phase"},
		{`{"managers": managers(object).map(m, m.manager)}`, "pods: metadata.managedFields"},
	} {
		p, err := env.Compile(test.text, cel.Emit, "pods")
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
		} else if got := fieldsText(p, "pods"); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.text, got, test.want)
		}
	}
}

// TestFieldsOfSeveralSources: an expression for several sources reads fields of each.
func TestFieldsOfSeveralSources(t *testing.T) {
	env := typedEnv(t, nil)
	p, err := env.Compile(`object.metadata.labels.app == "x" && dyn(object).spec.x == 1`, cel.Filter, "pods", "nodes")
	must.Succeed(t, err)
	if got, want := fieldsText(p, "pods", "nodes"), "nodes: metadata.labels.app spec.x, pods: metadata.labels.app spec.x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	byNode, err := env.Compile(`object.spec.podCIDR == ""`, cel.Filter, "nodes")
	must.Succeed(t, err)
	joined := cel.BySource(map[string]*cel.Program{"pods": p, "nodes": byNode})
	if got, want := fieldsText(joined, "pods", "nodes"), "nodes: spec.podCIDR, pods: metadata.labels.app spec.x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
