package wasm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/must"
)

// root is the root of the repository.
const root = "../../../"

// example is a handler of the repository with its golden files.
type example struct {
	name   string // of the test and of the module
	source string // folder; Go is built, other languages have a checked-in module
	golden string // pattern of files; empty: it has its own test
}

func examples() []example {
	return []example{
		{name: "restart-alert", source: "examples/plugins/restart-alert", golden: "examples/plugins/restart-alert/testdata/*.txtar"},
		{name: "image-policy", source: "examples/plugins/image-policy", golden: "examples/plugins/image-policy/testdata/*.txtar"},
		{name: "label-audit", source: "examples/plugins/label-audit", golden: "examples/plugins/label-audit/testdata/*.txtar"},
		{name: "pod-summary", source: "examples/plugins/pod-summary", golden: "examples/plugins/pod-summary/testdata/*.txtar"},
		// One golden file for all languages: the same deltas yield the same bytes.
		{name: "summary", source: "sdk/conformance/go", golden: "sdk/conformance/summary.txtar"},
		{name: "summary", source: "sdk/conformance/rust", golden: "sdk/conformance/summary.txtar"},
		{name: "summary", source: "sdk/conformance/c", golden: "sdk/conformance/summary.txtar"},
		{name: "summary", source: "sdk/conformance/assemblyscript", golden: "sdk/conformance/summary.txtar"},
		{name: "calls", source: "sdk/conformance/calls/go"},
		{name: "calls", source: "sdk/conformance/calls/rust"},
		{name: "calls", source: "sdk/conformance/calls/c"},
		{name: "calls", source: "sdk/conformance/calls/assemblyscript"},
		{name: "phase", source: "sdk/conformance/phase/go"},
		{name: "phase", source: "sdk/conformance/phase/rust"},
		{name: "phase", source: "sdk/conformance/phase/c"},
		{name: "phase", source: "sdk/conformance/phase/assemblyscript"},
	}
}

// module returns the path of the example's module.
func (e example) module(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(root + e.source + "/go.mod"); err == nil {
		skipIfSlow(t)
		return built.Module(t, root+e.source)
	}
	return filepath.Join(root, e.source, e.name+".wasm")
}

// TestExamples runs the examples in the router with their golden files. It needs only the Go
// toolchain.
func TestExamples(t *testing.T) {
	for _, e := range examples() {
		if e.golden == "" {
			continue
		}
		t.Run(strings.TrimPrefix(e.source, "examples/plugins/"), func(t *testing.T) {
			module := e.module(t)
			files, err := filepath.Glob(root + e.golden)
			if err != nil || len(files) == 0 {
				t.Fatal("it has no golden files", err)
			}
			// by configuration, because a compilation takes a second
			handlers := map[string]plugins.Handler{}
			for _, file := range files {
				sections := readSections(t, file)
				config := sections["config.json"]
				if handlers[config] == nil {
					handlers[config] = newHost().open(t, fmt.Sprintf("{module: %q, config: %s}", module, config))
				}
				t.Run(filepath.Base(file), func(t *testing.T) { golden(t, handlers[config], sections) })
			}
		})
	}
}

func readSections(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	sections := map[string]string{"config.json": "null"}
	for _, f := range txtar.Parse(text).Files {
		sections[f.Name] = string(f.Data)
	}
	return sections
}

// golden handles the deltas in batches, of deltas with a trace or without, and one by one.
func golden(t *testing.T, handler plugins.Handler, sections map[string]string) {
	t.Helper()
	deltas := parseDeltas(t, sections["deltas.json"])
	var want bytes.Buffer
	each(t, sections["results.json"], func(result json.RawMessage) {
		must.Succeed(t, json.Compact(&want, result))
		want.WriteByte('\n')
	})
	var together, single bytes.Buffer
	for batch := range runs(deltas) {
		for _, r := range handle(t, handler, batch) {
			together.WriteString(describe(t, r))
		}
	}
	for _, d := range deltas {
		single.WriteString(describe(t, handle(t, handler, []*event.Delta{d})[0]))
	}
	for _, got := range []string{together.String(), single.String()} {
		if got != want.String() {
			t.Errorf("got\n%swant\n%s", got, &want)
		}
	}
}

// runs yields the longest sequences of deltas that all have a trace, or all have none, as the
// batches of the router.
func runs(deltas []*event.Delta) iter.Seq[[]*event.Delta] {
	return func(yield func([]*event.Delta) bool) {
		for len(deltas) > 0 {
			end := slices.IndexFunc(deltas, func(d *event.Delta) bool { return (d.TraceParent == "") != (deltas[0].TraceParent == "") })
			if end < 0 {
				end = len(deltas)
			}
			if !yield(deltas[:end]) {
				return
			}
			deltas = deltas[end:]
		}
	}
}

// each calls f with each JSON value of a text.
func each(t *testing.T, text string, f func(json.RawMessage)) {
	t.Helper()
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var value json.RawMessage
		must.Succeed(t, dec.Decode(&value))
		f(value)
	}
}

func parseDeltas(t *testing.T, text string) (deltas []*event.Delta) {
	t.Helper()
	each(t, text, func(value json.RawMessage) {
		var in struct {
			Op                string
			Object, OldObject json.RawMessage

			Late               bool
			Repeat, Suppressed int
			TraceParent        string
			With               json.RawMessage
			Since              time.Time
			Event              *struct {
				event.Event

				Data json.RawMessage
			}
		}
		must.Succeed(t, json.Unmarshal(value, &in))
		op, ok := event.ParseOp(in.Op)
		if !ok {
			t.Fatalf("no op: %s", in.Op)
		}
		d := &event.Delta{Source: "pods", Op: op, New: parseObject(t, in.Object), Late: in.Late, Repeat: in.Repeat, Suppressed: in.Suppressed, Since: in.Since, TraceParent: in.TraceParent, With: in.With}
		if in.Event != nil {
			d.Event = &in.Event.Event
			d.Event.Data = in.Event.Data
		}
		if in.OldObject != nil {
			d.Old = parseObject(t, in.OldObject)
		}
		if op == event.Deleted || op == event.Deselected {
			d.Old, d.New = d.New, nil
		}
		deltas = append(deltas, d)
	})
	return deltas
}

// parseObject returns an object whose resource has the kind of the object.
func parseObject(t *testing.T, text json.RawMessage) *event.Object {
	t.Helper()
	var in struct{ Kind string }
	must.Succeed(t, json.Unmarshal(text, &in))
	resource := &event.Resource{Cluster: "test", Kind: in.Kind}
	resource.Version, resource.Resource = "v1", "tests"
	o, err := event.ParseObject(resource, string(text))
	must.Succeed(t, err)
	return o
}

// describe formats a result like the SDK's golden files.
func describe(t *testing.T, r plugins.Result) string {
	t.Helper()
	type emitted struct {
		Type    string          `json:"type,omitempty"`
		Subject string          `json:"subject,omitempty"`
		Data    json.RawMessage `json:"data"`
	}
	var out struct {
		Events []emitted `json:"events,omitempty"`
		Drop   bool      `json:"drop,omitempty"`
		Retry  string    `json:"retry,omitempty"`
		Error  string    `json:"error,omitempty"`
	}
	for _, e := range r.Events {
		out.Events = append(out.Events, emitted{e.Type, e.Subject, e.Data})
	}
	// the handler and the object precede the message
	_, message, named := strings.Cut(fmt.Sprint(r.Err), `wasm "enrich": `)
	switch {
	case r.Verdict == plugins.Drop:
		out.Drop = true
	case r.Err == nil:
	case !named:
		t.Errorf("the error does not name the handler: %v", r.Err)
	case r.Verdict == plugins.Retry:
		out.Retry = message
	default:
		out.Error = message
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	must.Succeed(t, enc.Encode(out))
	return text.String()
}
