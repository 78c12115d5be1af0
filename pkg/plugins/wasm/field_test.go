package wasm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestField: the host function field returns the place of a field in the text of an object.
func TestField(t *testing.T) {
	const text = `{"metadata" : {"name":"a","labels":{"a.b/c":"x","tru\u0065":true}}, "":{"":[1, 2]}, "back\\":-1.5 , "gone":"new"}`
	const old = `{"metadata":{"name":"a"},"gone":"old"}`
	deltas := []*event.Delta{
		{Source: "pods", Op: event.Updated, New: plugintest.Object(t, text), Old: plugintest.Object(t, old)},
		{Source: "pods", Op: event.Added, New: plugintest.Object(t, text)},
		{Source: "pods", Op: event.Deleted, Old: plugintest.Object(t, old)},
	}
	tests := []struct {
		delta, which int64
		path, want   string // empty: not found
	}{
		{0, 0, "metadata", `{"name":"a","labels":{"a.b/c":"x","tru\u0065":true}}`},
		{0, 0, "metadata.name", `"a"`},
		{0, 0, `metadata.labels.a\.b/c`, `"x"`},
		{0, 0, `metadata.labels.a.b/c`, ""},
		{0, 0, `metadata.labels.true`, "true"},
		{0, 0, `metadata.labels.\t\r\u\e`, "true"},
		{0, 0, ".", "[1, 2]"},
		{0, 0, "..", ""},
		{0, 0, `back\\`, "-1.5"},
		{0, 0, `back\`, "-1.5"},
		{0, 0, "gone", `"new"`},
		{0, 0, "gone.x", ""},
		{0, 1, "gone", `"old"`},
		{1, 0, "gone", `"new"`},
		{1, 1, "gone", ""},
		{2, 0, "gone", `"old"`},
		{2, 1, "gone", `"old"`},
	}
	data := make(map[uint32]string)
	var steps []step
	for i, tt := range tests {
		at, want := 0x2000+0x100*i, int64(-1)
		data[uint32(at)] = tt.path
		if tt.want != "" {
			of := text
			if tt.which == 1 || tt.delta == 2 {
				of = old
			}
			want = int64(strings.Index(of, tt.want))<<32 | int64(len(tt.want))
		}
		steps = append(steps, call("field", want, tt.delta, tt.which, int64(at), int64(len(tt.path))))
	}
	results, err := newHost().open(t, moduleYAML(t, script(data, steps...))).Handle(t.Context(), deltas)
	if err != nil || verdicts(results) != "ok ok ok" {
		var failed int
		if _, scanErr := fmt.Sscanf(lastWord(results[0].Err), "%d", &failed); scanErr == nil && failed >= wrong && failed-wrong < len(tests) {
			t.Fatalf("another result: %+v", tests[failed-wrong])
		}
		t.Fatal(err, results)
	}
}

// largePod returns the JSON of a pod of 5 KB, whose status comes last, as the API server sends it.
func largePod(phase string) string {
	labels := `{"app":"web","app.kubernetes.io/name":"web","app.kubernetes.io/part-of":"shop","pod-template-hash":"6d4cf56db6"}`
	container := `{"name":"web","image":"registry.example.com/shop/web@sha256:0123456789abcdef","args":["--listen=:8080","--verbose"],"env":[` +
		strings.Repeat(`{"name":"VARIABLE","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}},`, 6) + `{"name":"LAST","value":"x"}],` +
		`"resources":{"limits":{"cpu":"2","memory":"1Gi"}},"volumeMounts":[{"name":"data","mountPath":"/data"}],"imagePullPolicy":"IfNotPresent"}`
	condition := `{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-02T15:04:05Z"}`
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"default","uid":"0f4e2a4e","resourceVersion":"1234","labels":%s},`+
		`"spec":{"containers":[%s],"nodeName":"node-1"},"status":{"conditions":[%s],"phase":%q,"podIP":"10.0.0.1"}}`,
		labels, strings.Repeat(container+",", 4)+container, strings.Repeat(condition+",", 4)+condition, phase)
}

// indexed returns the object of largePod as the informer makes it.
func indexed(t testing.TB, phase string) *event.Object {
	t.Helper()
	text := largePod(phase)
	o, err := event.ParseIndexed(plugintest.Object(t, text).Resource(), text, 0, uint32(strings.Index(text, `{"conditions":`)))
	must.Succeed(t, err)
	return o
}

// TestFieldFuel: the fuel of a field does not depend on the index of the informer, so that a
// recorded call can be repeated.
func TestFieldFuel(t *testing.T) {
	const path = "status.phase"
	place := int64(strings.Index(largePod("Running"), `"Running"`))<<32 | int64(len(`"Running"`))
	var used []float64
	for _, object := range []*event.Object{plugintest.Object(t, largePod("Running")), indexed(t, "Running")} {
		h := newHost()
		handler := h.open(t, moduleYAML(t, script(map[uint32]string{0x2000: path}, call("field", place, 0, 0, 0x2000, int64(len(path))))))
		before := h.fuel()
		results, err := handler.Handle(t.Context(), []*event.Delta{{Source: "pods", Op: event.Added, New: object}})
		if err != nil || verdicts(results) != "ok" {
			t.Fatal(err, results)
		}
		used = append(used, h.fuel()-before)
	}
	if used[0] != used[1] || used[0] == 0 {
		t.Errorf("the fuel is %v without an index, and %v with one", used[0], used[1])
	}
}

// BenchmarkField measures a guest that reads status.phase of a pod of 5 KB, by the SDK of each
// language, and emits one event. The last level says how the object was made: by the informer, with
// the index of its status, or without one.
func BenchmarkField(b *testing.B) {
	for _, e := range examples() {
		if e.name != "phase" {
			continue
		}
		b.Run(e.source, func(b *testing.B) {
			b.Run("indexed", func(b *testing.B) { benchmarkField(b, e, indexed) })
			b.Run("searched", func(b *testing.B) {
				benchmarkField(b, e, func(t testing.TB, phase string) *event.Object { return plugintest.Object(t, largePod(phase)) })
			})
		})
	}
}

func benchmarkField(b *testing.B, e example, object func(t testing.TB, phase string) *event.Object) {
	b.Helper()
	handler, err := wasm.Kind().Open(b.Context(), plugintest.Node(b, fmt.Sprintf("{module: %q}", e.module(b))), newHost().env)
	must.Succeed(b, err)
	batch := make([]*event.Delta, 16)
	for i := range batch {
		batch[i] = &event.Delta{
			Source: "pods", Op: event.Updated, Old: object(b, "Pending"), New: object(b, "Running"), Seen: time.Unix(1, 0),
		}
	}
	for range 100 { // until the number of deltas per call is known
		results, err := handler.Handle(b.Context(), batch)
		if err != nil || results[0].Verdict != plugins.OK || string(results[0].Events[0].Data) != `{"phase":"Running"}` {
			b.Fatal(results, err)
		}
	}
	before := cpuTime()
	for b.Loop() {
		if _, err := handler.Handle(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/float64(b.N*len(batch)), "cpu-ns/delta")
	must.Report(b, handler.Close(b.Context()))
}
