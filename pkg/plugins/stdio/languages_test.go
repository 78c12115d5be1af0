package stdio_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

const (
	root     = "../../../"
	examples = root + "examples/plugins/"
)

// phase returns an update of a pod, with and without a new phase.
func phase(t testing.TB, name, before, after string) *event.Delta {
	t.Helper()
	pod := func(phase string) *event.Object {
		o, err := event.ParseObject(&event.Resource{Kind: "Pod"}, fmt.Sprintf(`{"metadata":{"namespace":"default","name":%q},"status":{"phase":%q}}`, name, phase))
		must.Succeed(t, err)
		return o
	}
	return &event.Delta{Source: "pods", Op: event.Updated, Old: pod(before), New: pod(after), Seen: time.Unix(1_700_000_000, 0)}
}

// TestCompiled runs the examples in C and Rust, which know nothing of the router.
func TestCompiled(t *testing.T) {
	for _, name := range []string{"command-c", "command-rust"} {
		t.Run(name, func(t *testing.T) {
			module := examples + name + "/" + name + ".wasm"
			checkSums(t, module+".sum")
			r := newRouter(t)
			h := r.open(t, fmt.Sprintf("{module: %q}", module))
			results, err := h.Handle(t.Context(), []*event.Delta{phase(t, "a", "Pending", "Running"), phase(t, strings.Repeat("b", 250), "", strings.Repeat("c", 60))})
			must.Succeed(t, err)
			want := []string{`ok {"pod":"a","phase":"Running"}`, fmt.Sprintf(`ok {"pod":"%s","phase":"%s"}`, strings.Repeat("b", 250), strings.Repeat("c", 60))}
			for i, result := range results {
				if got := describe(result); got != want[i] {
					t.Errorf("got %s\nwant %s", got, want[i])
				}
			}
			must.Succeed(t, h.Close(t.Context()))
			if !strings.Contains(r.log.String(), "no more deltas") {
				t.Errorf("it did not see the end of stdin:\n%s", r.log.String())
			}
			if n := testutil.CollectAndCount(r.env.Metrics.(*metrics.Metrics).GuestsEnded); n != 0 {
				t.Errorf("it was replaced %d times", n)
			}
		})
	}
}

// checkSums fails if a checked-in module is not that of the sources beside it.
func checkSums(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	for line := range strings.Lines(string(text)) {
		want, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		content, err := os.ReadFile(root + name)
		must.Succeed(t, err)
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has changed: sh tools/guests.sh checked-in", name)
		}
	}
}

// python opens the example in Python with more lines of configuration.
func (r *router) python(t testing.TB, script, more string) plugins.Handler {
	t.Helper()
	if effort.Race {
		t.Skip("compiling CPython takes too long under the race detector")
	}
	module := examples + "command-python/python.wasm"
	if _, err := os.Stat(module); err != nil {
		t.Skip("no CPython for WASI (sh tools/python.sh)")
	}
	return r.open(t, fmt.Sprintf("module: %q\nargs: [/app/script.py]\nfiles: [{file: %q, to: /app/script.py}]\n%s", module, script, more))
}

// TestPython runs the example in Python, and scripts that fail.
func TestPython(t *testing.T) {
	r := newRouter(t)
	h := r.python(t, examples+"command-python/phase.py", "config: {environment: prod}")
	results, err := h.Handle(t.Context(), []*event.Delta{phase(t, "a", "Pending", "Running"), phase(t, "b", "x", "x"), phase(t, "ü", "x", "y")})
	must.Succeed(t, err)
	want := []string{`ok {"pod": "a", "phase": "Running", "environment": "prod"}`, "drop", `ok {"pod": "\u00fc", "phase": "y", "environment": "prod"}`}
	for i, result := range results {
		if got := describe(result); got != want[i] {
			t.Errorf("got %s\nwant %s", got, want[i])
		}
	}
	must.Succeed(t, h.Close(context.WithoutCancel(t.Context())))
	for _, want := range []string{`text="a: Pending -> Running"`, "no more deltas"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, r.log.String())
		}
	}

	script := filepath.Join(t.TempDir(), "script.py")
	must.Succeed(t, os.WriteFile(script, []byte(`import sys, json
def deep(n): return deep(n + 1)
n = 0
for line in sys.stdin:
    name = json.loads(line)["name"]
    n += 1
    if name == "raise": raise ValueError("on purpose")
    if name == "deep":
        try: deep(0)
        except RecursionError: pass
    if name == "loop":
        while True: pass
    print(json.dumps({"events": [{"data": n}]}))
`), 0o600))
	r = newRouter(t)
	h = r.python(t, script, "limits: {fuel: 200M}") // a traceback takes more than the default
	got := strings.Join(handle(t, h, "a", "deep", "raise", "b", "loop", "c"), "\n")
	wantAll := strings.Join([]string{
		"ok 1", "ok 2", `fail stdio "audit": the guest exited with code 1`, "ok 1",
		`fail stdio "audit": out of fuel: one delta takes more than 200000000 instructions: raise limits.fuel, or do less`, "ok 1",
	}, "\n")
	if got != wantAll {
		t.Errorf("got\n%s\nwant\n%s", got, wantAll)
	}
	if !strings.Contains(r.log.String(), "ValueError: on purpose") {
		t.Errorf("the log lacks the traceback:\n%s", r.log.String())
	}
}
