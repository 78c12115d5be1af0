package cel_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

const (
	webBefore = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1",
		"labels": {"app": "web", "tier": "front"}, "annotations": {"example.com/x": "1"}, "finalizers": ["a/b", "c/d"],
		"creationTimestamp": "2026-01-02T03:04:05Z"},
		"spec": {"containers": [{"name": "a", "image": "i:1", "args": ["-v"]}, {"name": "b", "image": "j:1"}]},
		"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}, {"type": "Scheduled", "status": "True"}]}}`
	webAfter = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1",
		"labels": {"tier": "front", "app": "shop"}, "annotations": {"example.com/x": "1"}, "finalizers": ["c/d", "a/b"],
		"creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-03T00:00:00Z",
		"managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
			"fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}, "f:a.b/c": {}}, "f:finalizers": {".": {}, "v:\"a/b\"": {}}},
			"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {}}}}}},
			{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}}],
		"ownerReferences": [{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u9"},
			{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u2", "controller": true}]},
		"spec": {"nodeName": "n1", "containers": [{"name": "b", "image": "j:1"}, {"name": "a", "image": "i:2", "args": ["-v", "-w"]}]},
		"status": {"phase": "Running", "conditions": [{"type": "Scheduled", "status": "True"}, {"type": "Ready", "status": "True"}]}}`
	replicaSet = `{"metadata": {"name": "web", "namespace": "shop", "uid": "u2",
		"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u3", "controller": true}]}}`
	deployment = `{"metadata": {"name": "web", "namespace": "shop", "uid": "u3"}, "spec": {"replicas": 3}}`
)

// libraryConfig has sources that all functions have something to say about, with types or without.
func libraryConfig(tb testing.TB, typed bool) cel.EnvConfig {
	tb.Helper()
	cfg := typedConfig(tb, nil)
	cfg.Sources["replicasets"] = []string{"name"}
	cfg.Owners = map[string]cel.Owner{
		"replicasets": {Group: "apps", Kind: "ReplicaSet", Resource: "replicasets"},
		"deployments": {Group: "apps", Resource: "deployments"},
	}
	cfg.ManagedFields = map[string]bool{"pods": true}
	if !typed {
		cfg.Types = nil
	}
	return cfg
}

func libraryInput(tb testing.TB, op event.Op, before, after string) cel.Input {
	tb.Helper()
	d := &event.Delta{Source: "pods", Op: op}
	if before != "" {
		d.Old = object(tb, before)
	}
	if after != "" {
		d.New = object(tb, after)
	}
	return cel.Input{Delta: d, Cache: cache{
		"replicasets//": {object(tb, replicaSet)}, "deployments//": {object(tb, deployment)},
		"nodes//": {object(tb, `{"metadata": {"name": "n1"}, "spec": {"unschedulable": true}}`)},
	}}
}

// valueOf is the value as JSON, "absent" and so on, or "compile: " and why.
func valueOf(t *testing.T, env *cel.Env, text string, in cel.Input) string {
	t.Helper()
	p, err := env.Compile(text, cel.Value, "pods")
	if err != nil {
		return "compile: " + err.Error()
	}
	value, err := p.Value(t.Context(), in)
	if err != nil {
		return kindOf(err)
	}
	return string(value)
}

func eachMode(t *testing.T, run func(t *testing.T, env *cel.Env, typed bool)) {
	t.Helper()
	for name, typed := range map[string]bool{"typed": true, "untyped": false} {
		t.Run(name, func(t *testing.T) {
			env, err := cel.NewEnv(libraryConfig(t, typed))
			must.Succeed(t, err)
			run(t, env, typed)
		})
	}
}

// TestChangedPaths: results of changed() for a path with wildcards, when a pod becomes another one,
// and of the same path for other ops.
func TestChangedPaths(t *testing.T) {
	const (
		one = `{"metadata": {"name": "x", "labels": {"a": "1", "b": "2"}, "annotations": {"example.com/x": "1"}},
			"spec": {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "j"}]}}`
		two = `{"metadata": {"name": "x", "labels": {"b": "2", "a": "1"}, "annotations": {"example.com/x": "2", "y": null}},
			"spec": {"containers": [{"name": "a", "image": "j", "ports": [{"containerPort": 80.0}]}, {"name": "b", "image": "i"}, {"name": "c"}]}}`
	)
	eachMode(t, func(t *testing.T, env *cel.Env, _ bool) {
		for _, test := range []struct {
			path            string
			changed, exists bool
		}{
			{"spec.containers[*].image", true, true},
			{"spec.containers[*].name", true, true},
			{"spec.containers[*].ports[*].containerPort", false, true},
			{"spec.containers[*].ports", false, true},
			{"spec.containers[*].args[*]", false, false},
			{"spec.containers[0].image", true, true},
			{"spec.containers[2].name", true, true},
			{"spec.containers[*]", true, true},
			{"metadata.labels[*]", false, true},
			{"metadata.labels", false, true},
			{"metadata.annotations[*]", true, true},
			{`metadata.annotations["example.com/x"]`, true, true},
			{"metadata.annotations['example.com/x']", true, true},
			{"metadata.annotations[example.com/x]", true, true},
			{`metadata.annotations["*"]`, false, false},
			{"spec.volumes[*]", false, false},
		} {
			text := "changed(" + strings.ReplaceAll(`"`+strings.ReplaceAll(test.path, `"`, `\"`)+`"`, "\n", "") + ")"
			for op, want := range map[event.Op]bool{event.Updated: test.changed, event.Deleted: false, event.Deselected: false, event.Sync: false} {
				old, now := one, two
				switch op {
				case event.Deleted, event.Deselected:
					now = ""
				case event.Sync:
					old = ""
				default:
				}
				if got := valueOf(t, env, text, libraryInput(t, op, old, now)); got != map[bool]string{true: "true", false: "false"}[want] {
					t.Errorf("%s, %s: %s", text, op, got)
				}
			}
			exists := map[bool]string{true: "true", false: "false"}[test.exists]
			if got := valueOf(t, env, text, libraryInput(t, event.Added, "", one)); test.path != "spec.containers[2].name" && got != exists {
				t.Errorf("%s, added: %s", text, got)
			}
			if got := valueOf(t, env, text, libraryInput(t, event.Updated, two, two)); got != "false" {
				t.Errorf("%s, the same: %s", text, got)
			}
		}
		// a value that moves from one key to another is another value, one that moves in a list to
		// where there was none is not
		for _, test := range []struct{ path, was, is, want string }{
			{"metadata.labels[*]", `{"a": "1", "b": "2"}`, `{"a": "2", "b": "1"}`, "true"},
			{"metadata.labels[*]", `{"a": "1"}`, `{"b": "1"}`, "true"},
			{"metadata.labels[*]", `{}`, `{"b": "1"}`, "true"},
		} {
			was := `{"metadata": {"name": "x", "labels": ` + test.was + `}}`
			is := `{"metadata": {"name": "x", "labels": ` + test.is + `}}`
			if got := valueOf(t, env, `changed("`+test.path+`")`, libraryInput(t, event.Updated, was, is)); got != test.want {
				t.Errorf("%s: %s → %s: %s", test.path, test.was, test.is, got)
			}
		}
	})
}

// TestDiff: the differences have the same order each time. Only types show which lists are maps and
// sets.
func TestDiff(t *testing.T) {
	const paths = `diff(oldObject, object).map(d, d.path)`
	eachMode(t, func(t *testing.T, env *cel.Env, typed bool) {
		in := libraryInput(t, event.Updated, webBefore, webAfter)
		for text, want := range map[string][2]string{ // typed, untyped
			`diff(oldObject.status, object.status)`: {
				`[{"new":"True","old":"False","path":"conditions[type=\"Ready\"].status"},{"new":"Running","old":"Pending","path":"phase"}]`,
				`[{"new":"True","old":"False","path":"conditions[0].status"},{"new":"Scheduled","old":"Ready","path":"conditions[0].type"},` +
					`{"new":"Ready","old":"Scheduled","path":"conditions[1].type"},{"new":"Running","old":"Pending","path":"phase"}]`,
			},
			`diff(oldObject.spec, object.spec).map(d, d.path)`: {
				`["containers[name=\"a\"].args[1]","containers[name=\"a\"].image","nodeName"]`,
				`["containers[0].args","containers[0].image","containers[0].name","containers[1].args","containers[1].image","containers[1].name","nodeName"]`,
			},
			`diff(oldObject.metadata.finalizers, object.metadata.finalizers)`: {
				`[]`, `[{"new":"c/d","old":"a/b","path":"[0]"},{"new":"a/b","old":"c/d","path":"[1]"}]`,
			},
			`diff(oldObject.metadata, object.metadata).filter(d, d.old == null).map(d, d.path)`: {
				`["deletionTimestamp","managedFields","ownerReferences"]`, `["deletionTimestamp","managedFields","ownerReferences"]`,
			},
			`diff(oldObject, object).exists(d, d.path == "metadata.labels.app" && d.old == "web" && d.new == "shop")`: {"true", "true"},
			`diff(object, object)`:                              {"[]", "[]"},
			`diff({"a": 1, "b": [1]}, {"a": 1.0, "b": [1, 2]})`: {`[{"new":2,"old":null,"path":"b[1]"}]`, `[{"new":2,"old":null,"path":"b[1]"}]`},
			`diff({"a.b/c": {"d": 1}}, {"a.b/c": {"d": 2}})[0].path`: {
				`"[\"a.b/c\"].d"`, `"[\"a.b/c\"].d"`,
			},
			`diff(1, 2)`: {`[{"new":2,"old":1,"path":""}]`, `[{"new":2,"old":1,"path":""}]`},
			`diff(object.metadata.labels, oldObject.metadata.labels).size()`:                                     {"1", "1"},
			`diff(oldObject.?spec, object.?spec).exists(d, d.path == "nodeName" && d.old == null)`:               {"true", "true"},
			`diff(oldObject, object).exists(d, d.path == "metadata.deletionTimestamp" && type(d.new) == string)`: {"false", "true"},
			`diff(dyn(oldObject), dyn(object)) == diff(oldObject, object)`:                                       {"true", "true"},
		} {
			if got := valueOf(t, env, text, in); got != want[map[bool]int{true: 0, false: 1}[typed]] {
				t.Errorf("%s: %s", text, got)
			}
		}
		if got := valueOf(t, env, paths, libraryInput(t, event.Added, "", webAfter)); got != `["apiVersion","kind","metadata","spec","status"]` {
			t.Error("added:", got)
		}
		if got := valueOf(t, env, paths, libraryInput(t, event.Deleted, webAfter, "")); got != `[]` {
			t.Error("deleted:", got)
		}
		first := valueOf(t, env, paths, in)
		for range 20 {
			if again := valueOf(t, env, paths, in); again != first {
				t.Fatalf("%s, then %s", first, again)
			}
		}
	})
}

// TestDiffIsBounded: a value with more than a thousand differences counts as one, and a value that
// is too deep is not entered.
func TestDiffIsBounded(t *testing.T) {
	env, err := cel.NewEnv(libraryConfig(t, false))
	must.Succeed(t, err)
	long := func(value string) string {
		return `{"metadata": {"name": "x"}, "few": "` + value + `", "data": {` + strings.TrimSuffix(strings.Repeat("", 1)+manyKeys(1001, value), ",") + `}}`
	}
	in := libraryInput(t, event.Updated, long("1"), long("2"))
	if got := valueOf(t, env, `diff(oldObject, object).map(d, d.path)`, in); got != `["data","few"]` {
		t.Error(got)
	}
	if got := valueOf(t, env, `diff(oldObject.data, object.data).map(d, d.path)`, in); got != `[""]` {
		t.Error(got)
	}
	deep := func(value string) string {
		return `{"metadata": {"name": "x"}, "a":` + strings.Repeat(`{"a":`, 100) + value + strings.Repeat("}", 100) + "}"
	}
	in = libraryInput(t, event.Updated, deep("1"), deep("2"))
	if got := valueOf(t, env, `diff(oldObject, object).map(d, d.path)`, in); got != `["`+strings.TrimSuffix(strings.Repeat("a.", 64), ".")+`"]` {
		t.Error(got)
	}
}

func manyKeys(n int, value string) string {
	fields := make(map[string]bool, n)
	for i := range n {
		fields[`"k`+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/26%40)+string(rune('a'+i/1040))+`":"`+value+`"`] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ",")
}

func TestManagers(t *testing.T) {
	eachMode(t, func(t *testing.T, env *cel.Env, _ bool) {
		in := libraryInput(t, event.Added, "", webAfter)
		for text, want := range map[string]string{
			`managers(object).map(m, m.manager + "/" + m.operation + "/" + m.subresource)`: `["kubectl/Apply/","kubelet/Update/status"]`,
			`managers(object)[0].fields`: `["metadata.finalizers","metadata.finalizers[=\"a/b\"]","metadata.labels[\"a.b/c\"]","metadata.labels.app",` +
				`"spec.containers[name=\"a\"]","spec.containers[name=\"a\"].image","spec.containers[name=\"a\"].name"]`,
			`managers(object)[1]`: `{"apiVersion":"v1","fields":["status.phase"],"manager":"kubelet","operation":"Update","subresource":"status"}`,
			`managers(object)[0].time == timestamp("2026-01-02T03:04:05Z") && !has(managers(object)[1].time)`: "true",
			`managers(object)[1].time`:                     "absent",
			`managers(object).exists(m, m.manager == "x")`: "false",
		} {
			if got := valueOf(t, env, text, in); got != want {
				t.Errorf("%s: %s", text, got)
			}
		}
		if got := valueOf(t, env, `managers(object)`, libraryInput(t, event.Added, "", webBefore)); got != "[]" {
			t.Error(got)
		}
		for _, text := range []string{`managers(object) == []`, `managers(oldObject) == []`, `managers(get("nodes", "", "n1")) == []`} {
			source := map[bool]string{true: "nodes", false: "deployments"}[strings.Contains(text, "get")]
			_, err := env.Compile(text, cel.Filter, "deployments")
			if err == nil || !strings.HasSuffix(err.Error(), `source "`+source+`" does not keep managedFields; give it managedFields: true`) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if _, err := env.Compile(`managers(object) == []`, cel.Filter, "pods", "nodes"); err == nil || !strings.Contains(err.Error(), `"nodes" does not`) {
			t.Error(err)
		}
	})
}

// TestController goes from a pod to its deployment as far as the cache reaches.
func TestController(t *testing.T) {
	eachMode(t, func(t *testing.T, env *cel.Env, _ bool) {
		in := libraryInput(t, event.Added, "", webAfter)
		for text, want := range map[string]string{
			`controller(object)`: `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","namespace":"shop",` +
				`"object":` + strings.ReplaceAll(deployment, ": ", ":") + `,"uid":"u3"}`,
			`controller(object).object.spec.replicas`:                          "3",
			`controller(object).kind == "Deployment"`:                          "true",
			`controller(controller(object).object) == null`:                    "true",
			`controller(get("deployments", "shop", "web")) == null`:            "true",
			`controller(get("replicasets", "shop", "web")).name`:               `"web"`,
			`controller(get("deployments", "shop", "web")).kind == "x"`:        "absent",
			`has(controller(object).object) && controller(object) != null`:     "true",
			`controller(object).?object.?spec.?replicas.orValue(0) + 1`:        "4",
			`diff(controller(object), controller(object)) == []`:               "true",
			`sha256(controller(object).uid).startsWith("` + sumOf("u3") + `")`: "true",
		} {
			got := valueOf(t, env, text, in)
			if strings.ReplaceAll(strings.ReplaceAll(got, ": ", ":"), ", ", ",") != strings.ReplaceAll(want, ", ", ",") {
				t.Errorf("%s: %s", text, got)
			}
		}
		p, err := env.Compile(`controller(object).kind == "Deployment"`, cel.Filter, "pods")
		if err != nil || !slices.Equal(p.Sources(), []string{"deployments", "replicasets"}) {
			t.Error(err, p.Sources())
		}
		reached := func(cached cache) string {
			in.Cache = cached
			return valueOf(t, env, `[controller(object).kind, has(controller(object).object)]`, in)
		}
		full := in.Cache.(cache)
		if got := reached(cache{"replicasets//": full["replicasets//"]}); got != `["Deployment",false]` {
			t.Error("without the deployment:", got)
		}
		if got := reached(cache{"deployments//": full["deployments//"]}); got != `["ReplicaSet",false]` {
			t.Error("without the replica set:", got)
		}
		other := object(t, strings.Replace(replicaSet, `"uid": "u2"`, `"uid": "u7"`, 1))
		if got := reached(cache{"replicasets//": {other}, "deployments//": full["deployments//"]}); got != `["ReplicaSet",false]` {
			t.Error("with another of that name:", got)
		}
		circle := object(t, strings.ReplaceAll(strings.Replace(replicaSet, "Deployment", "ReplicaSet", 1), "u3", "u2"))
		if got := reached(cache{"replicasets//": {circle}}); got != `["ReplicaSet",true]` {
			t.Error("in a circle:", got)
		}
		in.Cache = nil
		if got := valueOf(t, env, `controller(object).kind`, in); got != `"ReplicaSet"` {
			t.Error("without a cache:", got)
		}
		_, err = env.Compile(`controller(object).kind`, cel.Index, "pods")
		must.Fail(t, err, "controller() does not exist here")
	})
}

// sumOf is the beginning of the sum that everybody else computes.
func sumOf(text string) string {
	return map[string]string{"u3": "", "abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}[text]
}

func TestSHA256(t *testing.T) {
	eachMode(t, func(t *testing.T, env *cel.Env, _ bool) {
		in := libraryInput(t, event.Added, "", webAfter)
		for text, want := range map[string]string{
			`sha256("abc")`:       `"` + sumOf("abc") + `"`,
			`sha256(b"abc")`:      `"` + sumOf("abc") + `"`,
			`sha256(dyn("abc"))`:  `"` + sumOf("abc") + `"`,
			`sha256(dyn(b"abc"))`: `"` + sumOf("abc") + `"`,
			`sha256(dyn(1))`:      "type",
			`sha256(object.metadata.name) == sha256("web-0")`: "true",
		} {
			if got := valueOf(t, env, text, in); got != want {
				t.Errorf("%s: %s", text, got)
			}
		}
	})
}

// TestLibraryIsBounded: calls in loops end at the cost limit, long before they would by themselves.
func TestLibraryIsBounded(t *testing.T) {
	text := `{"metadata": {"name": "x"}, "a": "` + strings.Repeat("a", 1<<20) + `", "long": [0` + strings.Repeat(",0", 100_000) + `]}`
	other := strings.Replace(text, `"a": "a`, `"a": "b`, 1)
	in := updated(t, text, other)
	for _, text := range []string{
		`object.long.exists(x, sha256(object.a) == "")`,
		`object.long.exists(x, diff(oldObject, object).size() == 0)`,
		`object.long.exists(x, changed("long[*]"))`,
		`object.long.exists(x, managers(object).size() > 0)`,
		`object.long.exists(x, controller(object) != null)`,
	} {
		env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": nil}, ManagedFields: map[string]bool{"pods": true}})
		must.Succeed(t, err)
		p, err := env.Compile(text, cel.Filter, "pods")
		must.Succeed(t, err)
		t.Run(text, func(t *testing.T) {
			if ok, err := p.Match(t.Context(), in); kindOf(err) != "cost" {
				t.Errorf("%v %v", ok, err)
			}
		})
	}
}
