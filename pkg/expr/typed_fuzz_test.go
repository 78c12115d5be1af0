package expr_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/pkg/expr"
)

// FuzzTyped runs programs about a pod on any object, whatever it has where a pod has something else: none may panic or return what is
// no EvalError, and what an emit passes on must still be JSON.
func FuzzTyped(f *testing.F) {
	env := typedEnv(f, nil)
	compile := func(text string, usage expr.Usage) *expr.Program {
		p, err := env.Compile(text, usage, "pods")
		if err != nil {
			f.Fatal(text, err)
		}
		return p
	}
	var filters, emits []*expr.Program
	for _, text := range []string{
		`object.metadata.creationTimestamp == oldObject.metadata.creationTimestamp`, `object.spec == oldObject.spec`, `object == oldObject`,
		`object.metadata.finalizers == oldObject.metadata.finalizers`, `object.spec.containers + oldObject.spec.containers == object.spec.containers`,
		`object.spec.containers.exists(c, c.ports.all(p, p.containerPort + 1 > 80 || p.name in object.metadata.finalizers))`,
		`has(object.metadata.deletionTimestamp) && object.metadata.deletionTimestamp.getFullYear() > 2000`,
		`object.metadata.labels.all(k, v, k < v)`, `object.metadata.?labels["a"].orValue("") == object.metadata.__namespace__`,
		`dyn(object).spec.map(k, k).size() == dyn(object.spec).size()`, `dyn(object) == dyn(oldObject)`, `object.spec.priority * 2 > 3`,
		`object.spec.containers[0].livenessProbe.httpGet.port == object.spec.containers[0].readinessProbe.httpGet.port`,
		`object.spec.containers in [oldObject.spec.containers]`, `type(object.status.startTime) == google.protobuf.Timestamp`,
	} {
		filters = append(filters, compile(text, expr.Filter))
	}
	for _, text := range []string{`object`, `{"a": object.metadata, "t": object.metadata.creationTimestamp, "l": object.spec.containers}`, `object.spec.containers`} {
		emits = append(emits, compile(text, expr.Emit))
	}
	f.Add(podJSON(f), web)
	f.Add(`{"metadata": {"finalizers": ["a", 1, null], "creationTimestamp": null, "labels": []}, "spec": [1], "status": {"startTime": ""}}`,
		`{"metadata": {"finalizers": [1, "a", {}], "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"containers": [{"name": 1}, null, {"name": {}}], "priority": 1e3}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		in := updated2(before, after)
		if in.Delta == nil {
			return
		}
		for _, p := range filters {
			_, err := p.Match(t.Context(), in)
			ours(t, err)
		}
		for _, p := range emits {
			events, err := p.Emit(t.Context(), in)
			ours(t, err)
			for _, e := range events {
				if !json.Valid(e.Data) && utf8.ValidString(before+after) {
					t.Errorf("not JSON: %s", e.Data)
				}
			}
		}
	})
}
