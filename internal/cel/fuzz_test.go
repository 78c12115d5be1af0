package cel_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// FuzzEvaluate runs a set of programs, over all kinds of values, on any object: none may panic or
// return an error other than an EvalError, and the values that an emit passes on must still be
// JSON.
func FuzzEvaluate(f *testing.F) {
	var filters, emits, indexes []*cel.Program
	for _, text := range []string{
		`object.a == 1 && has(object.a.b) && object.a.b.c[0] == "x"`, `object.a == object.b`, `object.a in object.b`,
		`object.a.exists(k, object.a[k] == k)`, `object.a.all(k, v, v == object.b[k])`, `size(object.a) > size(object.b)`,
		`object.a < object.b`, `object.a + object.b == object.c`, `changed("a") || changed("a[0].b") || changed('b["c"]')`,
		`changed("a[*]") || changed("a[*].b[*]")`, `diff(object.a, object.b) == diff(object.b, object.a)`, `sha256(object.a) == sha256(object.b)`,
		`controller(object.a).kind == controller(object).name`, `diff(oldObject, object).exists(d, d.old == d.new)`,
		`object.a.startsWith(object.b)`, `object.a.matches("^a+$")`, `{"k": object.a} == {"k": object.b}`, `[object.a] == [object.b]`,
		`type(object.a) == type(object.b)`, `object.a in [1, 2, 3]`, `object.a ? object.b : object.c`, `object[object.a] == 1`,
		`object.?a.b[?0].orValue(1) == 1`, `lookup("byNode", object.a).size() == count("byNode", object.b)`, `crashing`,
		`{object.a: 1}[object.b] == 1`, `object.a.map(x, x * 2).exists(x, x > 3)`, `object.a.filter(x, x).size() == 1`,
		`sets.contains(object.a, object.b)`, `object.a.join(",") == ""`, `"%s".format([object.a]) == ""`, `string(object.a) == ""`,
		`object.a.sort() == object.b.distinct()`, `object.a.transformMap(k, v, v) == object.a`, `int(object.a) == 1`,
		`quantity(object.a).isInteger()`, `optional.ofNonZeroValue(object.a).hasValue()`, `object.a == oldObject.a`,
		`dyn(object.a) == dyn([1, {"a": 2}])`, `object.a.flatten() == []`, `object.a.isSorted()`, `object.a[object.b] == 1`,
	} {
		filters = append(filters, compile(f, text, cel.Filter))
	}
	for _, text := range []string{`object`, `object.a`, `[object, {"a": object.b}]`, `{"a": object.a, "b": [object.b]}`, `object.a.map(x, {"x": x})`} {
		emits = append(emits, compile(f, text, cel.Emit))
	}
	for _, text := range []string{`object.a`, `object.a.split(",")`, `[object.a, object.b]`, `object.a.map(x, x.b)`} {
		indexes = append(indexes, compile(f, text, cel.Index))
	}
	f.Add(web, web)
	f.Add(`{"a": [1, {"b": 1e400}], "b": -0.0}`, `{"a": {"b": {"c": ["x"]}}, "b": {"c": "\ud800"}}`)
	f.Add(`{"a": 18446744073709551616, "b": "a\"b"}`, `{"a": null, "b": true, "c": [[[]]]}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		in := updated2(before, after)
		if in.Delta == nil {
			return
		}
		for _, p := range indexes {
			_, err := p.Keys(in.Delta.New)
			ours(t, err)
		}
		evaluateAll(t, in, filters, emits, utf8.ValidString(before+after))
	})
}

// evaluateAll evaluates programs and checks the type of their errors. valid: the objects are valid
// UTF-8, so the events are JSON.
func evaluateAll(t *testing.T, in cel.Input, filters, emits []*cel.Program, valid bool) {
	t.Helper()
	for _, p := range filters {
		_, err := p.Match(t.Context(), in)
		ours(t, err)
	}
	for _, p := range emits {
		events, err := p.Emit(t.Context(), in)
		ours(t, err)
		for _, e := range events {
			if !json.Valid(e.Data) && valid {
				t.Errorf("not JSON: %s", e.Data)
			}
		}
	}
}

// updated2 makes objects of texts that may be none: it adds the identity.
func updated2(before, after string) (in cel.Input) {
	var objects [2]*event.Object
	for i, text := range []string{before, after} {
		rest, ok := strings.CutPrefix(strings.TrimSpace(text), "{")
		if !ok {
			return in
		}
		text = `{"metadata":{"name":"x"},` + rest
		if strings.HasPrefix(strings.TrimSpace(rest), "}") {
			text = `{"metadata":{"name":"x"}` + rest
		}
		if rawjson.Check(text) != nil {
			return in
		}
		obj, err := event.ParseObject(&event.Resource{}, text)
		if err != nil {
			return in
		}
		objects[i] = obj
	}
	return cel.Input{Delta: &event.Delta{Op: event.Updated, Old: objects[0], New: objects[1]}, Cache: cache{}}
}

func ours(t *testing.T, err error) {
	t.Helper()
	var e *cel.EvalError
	if err != nil && !errors.As(err, &e) {
		t.Errorf("not an EvalError: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "internal error") {
		t.Error(err)
	}
}

// FuzzCompile: no text makes the compiler panic, a mistake is a CompileError with a place, and a
// compiled program can be evaluated.
func FuzzCompile(f *testing.F) {
	env := environment(f)
	for _, text := range []string{
		`object.a.b == 1 && changed("x")`, `lookup("byNode", object.a).size() > 1`, `crashing || same == []`, `{"a": 1, ?"b": object.?c}`,
		`object.a.exists(x, x.map(y, y)) ? 1 : 2`, `"\u00e9" == b'a' + r"\d"`, `cel.bind(x, 1, x + x)`, "// comment\n1", `[`, `"`, `a.b.c(`, "\xff", `{`,
		`changed("a[\"b\"].c[0]")`, `get("nodes", "", "a").x`, `1u + 2.0`, `timestamp("x")`, `duration("1s")`, `int("x")`, `[1, 2].in`,
	} {
		f.Add(text)
	}
	in := updated(f, web, web)
	f.Fuzz(func(t *testing.T, text string) {
		for _, usage := range []cel.Usage{cel.Filter, cel.Index, cel.Emit, cel.Key, cel.Query, cel.Value} {
			p, err := env.Compile(text, usage, "pods")
			if err != nil {
				for _, e := range cel.CompileErrors(err) {
					for _, issue := range e.Issues {
						if issue.Line < 1 || issue.Column < 0 || issue.Message == "" {
							t.Errorf("%q: issue without a place: %+v", text, issue)
						}
					}
				}
				if len(cel.CompileErrors(err)) == 0 {
					t.Errorf("%q: not a CompileError: %v", text, err)
				}
				continue
			}
			switch usage {
			case cel.Filter, cel.Query, cel.When:
				_, err = p.Match(t.Context(), in)
			case cel.Value:
				_, err = p.Value(t.Context(), in)
			case cel.Index:
				_, err = p.Keys(in.Delta.New)
			case cel.Emit:
				_, err = p.Emit(t.Context(), in)
			case cel.Key:
				_, err = p.Key(t.Context(), in)
			case cel.Objects: // not among them
			}
			ours(t, err)
		}
	})
}

// FuzzTyped runs programs about a pod on any object, including objects whose fields have other
// types: none may panic or return an error other than an EvalError, and the values that an emit
// passes on must still be JSON.
func FuzzTyped(f *testing.F) {
	env := typedEnv(f, nil)
	compile := func(text string, usage cel.Usage) *cel.Program {
		p, err := env.Compile(text, usage, "pods")
		if err != nil {
			f.Fatal(text, err)
		}
		return p
	}
	var filters, emits []*cel.Program
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
		filters = append(filters, compile(text, cel.Filter))
	}
	for _, text := range []string{`object`, `{"a": object.metadata, "t": object.metadata.creationTimestamp, "l": object.spec.containers}`, `object.spec.containers`} {
		emits = append(emits, compile(text, cel.Emit))
	}
	f.Add(podJSON(f), web)
	f.Add(`{"metadata": {"finalizers": ["a", 1, null], "creationTimestamp": null, "labels": []}, "spec": [1], "status": {"startTime": ""}}`,
		`{"metadata": {"finalizers": [1, "a", {}], "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"containers": [{"name": 1}, null, {"name": {}}], "priority": 1e3}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		in := updated2(before, after)
		if in.Delta == nil {
			return
		}
		evaluateAll(t, in, filters, emits, utf8.ValidString(before+after))
	})
}
