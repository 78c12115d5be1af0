package wasm_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	conf "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/must"
)

// fieldDeltas returns deltas whose guest answers with its objects.
func fieldDeltas(t testing.TB) []*event.Delta {
	object := func(version, more string) *event.Object {
		return plugintest.Object(t, fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":%q,"labels":{"a":"b"}},"spec":{"x":1}%s}`, version, more))
	}
	return []*event.Delta{
		{Source: "pods", Op: event.Updated, Old: object("1", ""), New: object("2", `,"status":{"phase":"Running","podIP":"1"}`)},
		{Source: "pods", Op: event.Deleted, Old: object("3", `,"status":{"podIP":"1"}`)},
		{Source: "secrets", Op: event.Added, New: object("4", `,"status":{},"data":{"password":"djE="}`)},
	}
}

// The objects of fieldDeltas with the field status.phase, and with no other fields.
const (
	phases = `{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"2"},"status":{"phase":"Running"}} {"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"1"}}
{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"3"},"status":{}} {"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"3"},"status":{}}
{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"4"},"status":{}} 
`
	specs = `{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"2"},"spec":{"x":1}} {"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"1"},"spec":{"x":1}}
{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"3"},"spec":{"x":1}} {"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"3"},"spec":{"x":1}}
{"kind":"Pod","metadata":{"name":"echo","namespace":"n","uid":"u","resourceVersion":"4"},"spec":{"x":1}} 
`
)

// whole returns the objects of fieldDeltas with all fields.
func whole(t testing.TB) (text string) {
	for _, d := range fieldDeltas(t) {
		text += string(d.Object().JSON()) + " "
		if d.Old != nil {
			text += string(d.Old.JSON())
		}
		text += "\n"
	}
	return text
}

// declaring writes the guest of the tests with a section of fields, and returns its file.
func declaring(t *testing.T, content string) string {
	t.Helper()
	text, err := os.ReadFile(built.Module(t, "testdata/guest"))
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "guest.wasm")
	must.Succeed(t, os.WriteFile(path, append(text, section(0, append(sized([]byte("deltarouter.fields")), content...))...), 0o600))
	return path
}

// TestFields: a guest gets the declared fields and those of the identity, of each object.
func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	for _, tt := range []struct{ name, section, config, want string }{
		{"of the configuration", "", ", fields: [status.phase]", phases},
		{"of the module", "status.phase\n", "", phases},
		{"the configuration has priority", "status.phase\n", ", fields: [spec]", specs},
		{"all, by the configuration", "status.phase\n", ", fields: []", whole(t)},
		{"all", "", "", whole(t)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := built.Module(t, "testdata/guest")
			if tt.section != "" {
				file = declaring(t, tt.section)
			}
			h := newHost()
			got := ""
			for _, r := range handle(t, h.open(t, fmt.Sprintf("{module: %q%s}", file, tt.config)), fieldDeltas(t)) {
				if r.Verdict != plugins.OK || len(r.Events) != 1 {
					t.Fatal(r)
				}
				var data struct {
					Object    json.RawMessage
					OldObject string
				}
				must.Succeed(t, json.Unmarshal(r.Events[0].Data, &data))
				got += string(data.Object) + " " + data.OldObject + "\n"
			}
			if got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
			if said := strings.Contains(h.log.String(), `msg="the module declares the fields that it gets" fields=[status.phase]`); said != (tt.section != "" && tt.config == "") {
				t.Errorf("the log says %s", h.log)
			}
		})
	}
}

func digest(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// TestFieldsOfCache: a cache keeps the fields of the configuration, or those that a module with a
// sha256 declares. Otherwise it keeps all (want is empty), because the module could be another one
// when it is opened.
func TestFieldsOfCache(t *testing.T) {
	// Guarantee: cache-auto
	file := declaring(t, "status.phase\nspec.nodeName\n")
	wrong, plain := declaring(t, "status[0]\n"), built.Module(t, "testdata/guest")
	for _, tt := range []struct{ name, config, want string }{
		{"pinned", "sha256: " + digest(t, file), "status.phase spec.nodeName"},
		{"not pinned", "", ""},
		{"another hash", "sha256: " + strings.Repeat("0", 64), ""},
		{"of the configuration", "fields: [spec.x], sha256: " + digest(t, file), "spec.x"},
		{"all, by the configuration", "fields: [], sha256: " + digest(t, file), ""},
		{"too large", "limits: {module: 4Ki}, sha256: " + digest(t, file), ""},
		{"a wrong declaration", fmt.Sprintf("module: %q, sha256: %s", wrong, digest(t, wrong)), ""},
		{"no declaration", fmt.Sprintf("module: %q, sha256: %s", plain, digest(t, plain)), ""},
		{"no file", "module: none.wasm, sha256: " + digest(t, file), ""},
		{"of a registry", "module: oci://example.com/a@sha256:" + digest(t, file) + ", sha256: " + digest(t, file), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.config
			if !strings.HasPrefix(text, "module: ") {
				text = fmt.Sprintf("module: %q, %s", file, text)
			}
			kind := wasm.Kind().(interface {
				Fields(node conf.Node) [][]string
			})
			var got []string
			for _, keys := range kind.Fields(plugintest.Node(t, "{"+text+"}")) {
				got = append(got, strings.Join(keys, "."))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestFieldsOfHost: for a guest with fields, the host function field finds these in the text that
// the guest has, and no others.
func TestFieldsOfHost(t *testing.T) {
	const path, other = 0x2000, 0x2100
	deltas := fieldDeltas(t)[:1]
	text := strings.Fields(phases)[0]
	place := func(value string) int64 { return int64(strings.Index(text, value))<<32 | int64(len(value)) }
	m := script(map[uint32]string{path: "status.phase", other: "metadata.labels"},
		call("field", place(`"Running"`), 0, 0, path, 12),
		call("field", -1, 0, 1, path, 12),
		call("field", -1, 0, 0, other, 15),
		call("field", place(text[strings.Index(text, `{"name"`):strings.Index(text, `,"status"`)]), 0, 0, other, 8),
	)
	run(t, newHost().open(t, withRights(t, m, "fields: [status.phase]")), deltas)
}

// TestFieldsOfModuleMistake: a module with a wrong declaration starts only if the configuration has
// fields.
func TestFieldsOfModuleMistake(t *testing.T) {
	file := declaring(t, "status[0]\n")
	_, err := newHost().tryOpen(t, fmt.Sprintf("{module: %q}", file))
	must.Fail(t, err, `its section deltarouter.fields: "status[0]": a path has no index: it continues in every element of a list, as in spec.containers.image: correct the module, or set fields`)
	newHost().open(t, fmt.Sprintf("{module: %q, fields: []}", file))
}

// TestFieldsMistakes: mistakes of fields have their position.
func TestFieldsMistakes(t *testing.T) {
	problems := wasm.Kind().Check(plugintest.Node(t, "module: a.wasm\nfields:\n  - status.phase\n  - 'a b'\n  - status.phase\n"))
	got := strings.Split(problems.Error(), "\n")
	if len(got) != 2 || !strings.HasPrefix(got[0], `test.yaml:4:5: fields[1]: "a b" is not a path`) || !strings.HasPrefix(got[1], `test.yaml:5:5: fields[2]: "status.phase" occurs twice`) {
		t.Errorf("got %q", got)
	}
}

// BenchmarkFields measures guests that need status.phase of a pod of 5 KB with its state before:
// by the path accessor of each SDK, and by decoding the object. The metric x is the CPU time
// relative to that with the whole object.
func BenchmarkFields(b *testing.B) {
	reads := map[string]string{"decodes in Go": built.Module(b, "testdata/guest")}
	for _, e := range examples() {
		if e.name == "phase" {
			reads["path in "+filepath.Base(e.source)] = e.module(b)
		}
	}
	names := make([]string, 0, len(reads))
	for name := range reads {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			var handlers []plugins.Handler
			for _, more := range []string{"", ", fields: [status.phase]"} {
				handler, err := wasm.Kind().Open(b.Context(), plugintest.Node(b, fmt.Sprintf("{module: %q%s}", reads[name], more)), newHost().env)
				must.Succeed(b, err)
				defer handler.Close(b.Context())
				handlers = append(handlers, handler)
			}
			object := func(phase string) *event.Object {
				return plugintest.Object(b, strings.Replace(largePod(phase), `"web-0"`, `"parse"`, 1))
			}
			batch := make([]*event.Delta, 16)
			for i := range batch {
				batch[i] = &event.Delta{Source: "pods", Op: event.Updated, Old: object("Pending"), New: object("Running"), Seen: time.Unix(1, 0)}
			}
			var times [2]time.Duration
			pass := func() {
				for k, handler := range handlers {
					before := cpuTime()
					if _, err := handler.Handle(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
					times[k] += cpuTime() - before
				}
			}
			for range 100 { // until the number of deltas per call is known
				pass()
			}
			times = [2]time.Duration{}
			for b.Loop() {
				pass()
			}
			deltas := float64(b.N * len(batch))
			b.ReportMetric(float64(times[0].Nanoseconds())/deltas, "cpu-ns/whole")
			b.ReportMetric(float64(times[1].Nanoseconds())/deltas, "cpu-ns/fields")
			b.ReportMetric(float64(times[1])/float64(times[0]), "x")
		})
	}
}
