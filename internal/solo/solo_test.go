package solo

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func components() compile.Components {
	return compile.Components{Handlers: []plugins.HandlerKind{wasm.Kind()}, Sinks: []plugins.SinkKind{discard.Kind()}}
}

// text is a configuration with a handler that every SDK has for its conformance.
const text = `version: 1
sources:
  all: {resource: v1/pods}
  pods: {resource: v1/pods}
  names: {resource: v1/configmaps, cache: identity}
handlers:
  summary: {wasm: {module: %s/summary.wasm, config: {note: note}}}%s
sinks: {none: {discard: {}}}
routes: [{name: r, from: pods, handler: summary, to: none}]
`

// write writes a configuration, with further lines behind the handlers.
func write(t *testing.T, more string) (path string) {
	t.Helper()
	sdk, err := filepath.Abs("../../sdk/conformance/c")
	must.Succeed(t, err)
	path = filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(path, fmt.Appendf(nil, text, sdk, more), 0o600))
	return path
}

func open(t *testing.T) *Handler {
	t.Helper()
	h, err := Open(t.Context(), Options{Config: write(t, ""), Components: components(), Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, h.Close(context.WithoutCancel(t.Context()))) })
	return h
}

func TestOpenMistakes(t *testing.T) {
	second := "\n  other: {wasm: {module: none.wasm}}\n"
	for _, c := range []struct{ name, handler, more, err string }{
		{"several handlers", "", second, "choose one with -handler, other or summary"},
		{"an unknown handler", "sumary", "", `there is no handler "sumary"; did you mean "summary"?`},
		{"no module", "other", second, "none.wasm: there is no such file"},
		{"a mistake of the kind", "other", "\n  other: {wasm: {modul: none.wasm}}\n", "modul"},
		{"an unknown kind", "other", "\n  other: {perl: {}}\n", `unknown kind of handler "perl"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(t.Context(), Options{Config: write(t, c.more), Name: c.handler, Components: components(), Log: slog.New(slog.DiscardHandler)})
			must.Fail(t, err, c.err)
		})
	}
}

const pods = `apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web, resourceVersion: "1", annotations: {note: first}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, resourceVersion: "2", annotations: {note: second}}}
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: c, resourceVersion: "3"}}
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: c, resourceVersion: "4"}}
`

// described returns a line for each delta.
func described(all []*event.Delta) string {
	var lines []string
	for _, d := range all {
		line := d.String()
		if d.Old != nil && d.New != nil {
			line += " from " + d.Old.ResourceVersion()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// TestObjects: the source is the one whose deltas the handler gets, a further state is an update,
// and a source that keeps no objects has no old state.
func TestObjects(t *testing.T) {
	h := open(t)
	all, err := h.Objects([]byte(pods))
	must.Succeed(t, err)
	want := "added pods shop/web; updated pods shop/web from 1; added names shop/c; updated names shop/c"
	if got := described(all); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, c := range []struct{ text, err string }{
		{"apiVersion: v1\nkind: Node\nmetadata: {name: n}\n", "object 1: no source of the configuration has objects of v1 Node; it has all, names, pods"},
		{"apiVersion: v1\nkind: Pod\n", "object 1: "},
		{"- 1\n", "no mapping with apiVersion"},
	} {
		_, err := h.Objects([]byte(c.text))
		must.Fail(t, err, c.err)
	}
}

func TestHandle(t *testing.T) {
	h := open(t)
	all, err := h.Objects([]byte(pods))
	must.Succeed(t, err)
	result, err := h.Handle(t.Context(), all[1])
	must.Succeed(t, err)
	if len(result.Events) != 1 || !strings.Contains(string(result.Events[0].Data), `"note":"second"`) {
		t.Errorf("%s %v %q", result.Verdict, result.Err, result.Events)
	}
}

// record writes a recording.
func record(t *testing.T, lines ...recording.Line) []byte {
	t.Helper()
	var out bytes.Buffer
	source := recording.Source{Resource: "v1/pods"}
	w, err := recording.NewWriter(&out, true, recording.Header{Cluster: "c", Sources: map[string]recording.Source{"pods": source, "gone": source}})
	must.Succeed(t, err)
	for _, l := range append(lines, recording.Line{Op: recording.End}) {
		must.Succeed(t, w.Write(l))
	}
	must.Succeed(t, w.Close())
	return out.Bytes()
}

func pod(version int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web","resourceVersion":"%d"}}`, version)
}

func TestRecording(t *testing.T) {
	h := open(t)
	recorded := record(t,
		recording.Line{Op: recording.Existing, Source: "pods", Kind: "Pod", Object: pod(1)},
		recording.Line{Op: recording.Synced, Source: "pods"},
		recording.Line{Op: recording.Updated, Source: "pods", Object: pod(2)},
		recording.Line{Op: recording.Sync, Source: "pods", Object: pod(2), Round: time.Unix(1, 0)},
		recording.Line{Op: recording.Updated, Source: "pods", Object: pod(3)},
		recording.Line{Op: recording.Deleted, Source: "pods", Object: pod(4)},
		recording.Line{Op: recording.Updated, Source: "pods", Object: pod(5)},
	)
	if !recording.Is(recorded) || recording.Is([]byte(pods)) || recording.Is([]byte(pod(1))) {
		t.Error("recording.Is confuses recordings and objects")
	}
	var all []*event.Delta
	for d, err := range h.Recording(bytes.NewReader(recorded)) {
		must.Succeed(t, err)
		all = append(all, d)
	}
	want := "added pods shop/web; updated pods shop/web from 1; sync pods shop/web; updated pods shop/web from 2; deleted pods shop/web; added pods shop/web"
	if got := described(all); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !all[0].Initial || all[1].Initial {
		t.Error("only the object of the first list is initial")
	}
}

func TestRecordingMistakes(t *testing.T) {
	h := open(t)
	whole := record(t, recording.Line{Op: recording.Added, Source: "gone", Object: pod(1)})
	for _, c := range []struct {
		text []byte
		err  string
	}{
		{whole, `the recording has the source "gone", which the configuration has not`},
		{record(t, recording.Line{Op: recording.Added, Source: "pods", Object: `{}`}), "an object of source pods: "},
		{whole[:len(whole)/2], ""},
		{[]byte("{}\n"), "not a recording"},
	} {
		var last error
		for _, err := range h.Recording(bytes.NewReader(c.text)) {
			last = err
		}
		must.Fail(t, last, c.err)
	}
}

// TestBench: the numbers are those of the handler, and the empty handler costs less.
func TestBench(t *testing.T) {
	h := open(t)
	none, err := OpenEmpty(t.Context(), components())
	must.Succeed(t, err)
	defer none.Close(t.Context())
	all, err := h.Objects([]byte(pods))
	must.Succeed(t, err)
	opts := BenchOptions{Batch: 4, Rounds: 3, Round: time.Microsecond}
	found, err := Bench(t.Context(), all, opts, h, none)
	must.Succeed(t, err)
	ours, empty := found[0], found[1]
	if ours.Events != 1 || ours.Deltas < 12 || ours.Time <= 0 || ours.Memory <= 0 || ours.FuelLimit != 75_000_000 {
		t.Errorf("the handler: %+v", ours)
	}
	if ours.Fuel < 100 || ours.Fuel > 1e6 || empty.Fuel > 10 || empty.Events != 0 {
		t.Errorf("fuel: %v beside %v of the empty handler %+v", ours.Fuel, empty.Fuel, empty)
	}
	again, err := Bench(t.Context(), all, opts, h)
	must.Succeed(t, err)
	if again[0].Fuel != ours.Fuel {
		t.Errorf("the same deltas cost %v and then %v fuel", ours.Fuel, again[0].Fuel)
	}
}

func TestBenchFails(t *testing.T) {
	h := open(t)
	bad := strings.ReplaceAll(pods, "note: second", "verdict: fail")
	all, err := h.Objects([]byte(bad))
	must.Succeed(t, err)
	_, err = Bench(t.Context(), all, BenchOptions{Batch: 4, Rounds: 1}, h)
	must.Fail(t, err, "updated pods shop/web: verdict fail: ")
	must.Fail(t, err, "as you wish")
}

// TestCache shows that a module is compiled once for all runs with one folder.
func TestCache(t *testing.T) {
	opts := Options{Config: write(t, ""), Components: components(), Log: slog.New(slog.DiscardHandler), Cache: t.TempDir()}
	compiled := func() (files []string) {
		h, err := Open(t.Context(), opts)
		must.Succeed(t, err)
		must.Succeed(t, h.Close(context.WithoutCancel(t.Context())))
		must.Succeed(t, filepath.WalkDir(opts.Cache, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() != "sha256" {
				info, err := d.Info()
				must.Succeed(t, err)
				files = append(files, fmt.Sprint(path, info.ModTime()))
			}
			return err
		}))
		return files
	}
	first := compiled()
	if second := compiled(); len(first) == 0 || !slices.Equal(first, second) {
		t.Errorf("the first run compiled %q, after the second there is %q", first, second)
	}
}
