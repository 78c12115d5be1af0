package wasm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	conf "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

// host is the environment of handlers in a test.
type host struct {
	env plugins.HandlerEnv
	log *logged.Buffer
}

// ofGuests returns the log without the lines about loaded modules.
func (h *host) ofGuests() string {
	lines := slices.DeleteFunc(strings.SplitAfter(h.log.String(), "\n"), func(line string) bool { return strings.Contains(line, `msg="module loaded"`) })
	return strings.Join(lines, "")
}

func newHost() *host {
	log := &logged.Buffer{}
	return &host{log: log, env: plugins.HandlerEnv{Env: plugins.Env{
		Name: "enrich", Cluster: "test", Metrics: metrics.New(), KV: kv.New(timer.NewFake(time.Now()), false),
		// The clock stands still, so that no guest exceeds its time on a busy machine.
		Clock: timer.NewFake(time.Now()),
		Log:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, Workers: 2, Lookup: &catalog{}}}
}

func (h *host) memory() float64 {
	return testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestMemory.WithLabelValues(h.env.Name))
}

func (h *host) tryOpen(t testing.TB, config string) (plugins.Handler, error) {
	t.Helper()
	f, node, env := wasm.Kind(), plugintest.Node(t, config), h.env
	if problems := f.Check(node); problems != nil {
		t.Fatal(problems)
	}
	if env.Cache == "" && isLarge(t, node) {
		env.Cache = built.Code(t)
	}
	return f.Open(t.Context(), node, env)
}

// isLarge reports whether the compilation of the module of a configuration takes longer than a look
// into a cache: of those of Go.
func isLarge(t testing.TB, node conf.Node) bool {
	t.Helper()
	for _, f := range wasm.Kind().(plugins.FileReader).Files(node) {
		if info, err := os.Stat(f); err == nil && info.Size() > 256<<10 {
			return true
		}
	}
	return false
}

// mustOpen opens a handler and closes it after the test.
func (h *host) mustOpen(t *testing.T, config string) plugins.Handler {
	t.Helper()
	handler, err := h.tryOpen(t, config)
	must.Succeed(t, err)
	return handler
}

func (h *host) open(t *testing.T, config string) plugins.Handler {
	t.Helper()
	handler, err := h.tryOpen(t, config)
	must.Succeed(t, err)
	t.Cleanup(func() {
		must.Report(t, handler.Close(context.WithoutCancel(t.Context())))
		if m := h.memory(); m != 0 {
			t.Errorf("after Close the guests have %v bytes of memory", m)
		}
	})
	return handler
}

func moduleYAML(t *testing.T, m module) string {
	t.Helper()
	return fmt.Sprintf("{module: %q}", m.write(t))
}

func handle(t *testing.T, h plugins.Handler, batch []*event.Delta) []plugins.Result {
	t.Helper()
	plugintest.CheckHandled(t, h, batch)
	results, err := h.Handle(t.Context(), batch)
	must.Succeed(t, err)
	return results
}

func verdicts(results []plugins.Result) string {
	var all []string
	for _, r := range results {
		all = append(all, r.Verdict.String())
	}
	return strings.Join(all, " ")
}

func TestContract(t *testing.T) {
	h := newHost()
	plugintest.RunHandler(t, plugintest.Handler{Kind: wasm.Kind(), Config: moduleYAML(t, guest(constant(opI64, 0))), Env: h.env})
	if m := h.memory(); m != 0 {
		t.Errorf("%v bytes of memory are left", m)
	}
}

func TestProblems(t *testing.T) {
	tests := []struct{ name, config, want string }{
		{"no module", "config: {a: 1}", "module is missing"},
		{"a server", "module: https://example.com/a.wasm", "https:// is not supported"},
		{"too little memory", "{module: a.wasm, limits: {memory: 1Ki}}", "memory"},
		{"too much memory", "{module: a.wasm, limits: {memory: 5Gi}}", "memory"},
		{"a limit that is none", "{module: a.wasm, limits: {memoy: 5Mi}}", "unknown key"},
		{"config that is no JSON", "{module: a.wasm, config: {a: .nan}}", "JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			problems := wasm.Kind().Check(plugintest.Node(t, tt.config))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) || problems[0].Line != 1 {
				t.Errorf("got %v, want one problem with %q", problems, tt.want)
			}
		})
	}
}

// TestOpen: invalid modules are rejected.
func TestOpen(t *testing.T) {
	ok := guest(constant(opI64, 0))
	edit := func(f func(m *module)) []byte {
		m := guest(constant(opI64, 0))
		f(&m)
		return m.assemble()
	}
	withInit := func(body []byte, data map[uint32][]byte) []byte {
		return edit(func(m *module) {
			m.data = data
			m.funcs = append(m.funcs, function{name: "rtr_init", params: []byte{i32, i32}, results: []byte{i32}, body: body})
		})
	}
	imports := func(f function) []byte {
		return edit(func(m *module) { m.imports = []function{f} })
	}
	tests := []struct {
		name   string
		module []byte
		want   string
	}{
		{"text", []byte("hello, world"), "not a WebAssembly module"},
		{"nothing", nil, "not a WebAssembly module"},
		{"truncated", ok.assemble()[:60], "cannot be compiled"},
		{"a component", []byte("\x00asm\x0d\x00\x01\x00rest"), "a WebAssembly component, as toolchains build for WASI 0.2 and later: the router runs core modules only: build it for WASI preview 1, which toolchains call wasm32-wasip1"},
		{"a component of an early draft", []byte("\x00asm\x0a\x00\x01\x00"), "a WebAssembly component"},
		{"a component without content", []byte("\x00asm\x0d\x00\x01\x00"), "a WebAssembly component"},
		{"a cut header", []byte("\x00asm\x0d\x00\x01"), "cannot be compiled"},
		{"the core module of a component", imports(function{module: "wasi:cli/environment@0.2.0", name: "get-arguments", params: []byte{i32}}), "it imports interfaces of components (WASI 0.2 or later), which the router does not give: build it for WASI preview 1, which toolchains call wasm32-wasip1"},
		{"WASI 0.2 and something else", edit(func(m *module) {
			m.imports = []function{{module: "wasi:io/streams@0.2.0", name: "drop"}, {module: "env", name: "abort"}}
		}), "or wasip1; it imports what the router does not give: env.abort"},
		{"another version", edit(func(m *module) { m.function("rtr_abi_version").body = constant(opI32, 2) }), "speaks version 2 of the ABI rtr_v1, the router speaks 1"},
		{"no exports", edit(func(m *module) { m.hide = []string{"rtr_handle", "rtr_alloc", "memory"} }), "does not export rtr_alloc (i32) → (i32), rtr_handle (i32, i32) → (i64), memory"},
		{"a program", edit(func(m *module) {
			m.hide = []string{"rtr_handle"}
			m.funcs = append(m.funcs, function{name: "_start"})
		}), "-buildmode=c-shared"},
		{"a wrong signature", edit(func(m *module) {
			*m.function("rtr_handle") = function{name: "rtr_handle", params: []byte{i32}, results: []byte{i64}, body: constant(opI64, 0)}
		}), "rtr_handle (i32, i32) → (i64) (it is (i32) → (i64))"},
		{"an unknown module", imports(function{module: "env", name: "abort"}), "does not give: env.abort"},
		{"an unknown function", imports(function{module: "rtr_v1", name: "exec"}), "does not give: rtr_v1.exec"},
		{"an unknown WASI function", imports(function{module: "wasi_snapshot_preview1", name: "fork"}), "does not give: wasi_snapshot_preview1.fork"},
		{"a host function with a wrong signature", imports(function{module: "rtr_v1", name: "now_ns", results: []byte{i32}}), "rtr_v1.now_ns as () → (i32) (it is () → (i64))"},
		{"too much memory", edit(func(m *module) { m.memory = append([]byte{0}, uleb(2000)...) }), "cannot be compiled"},
		{"no memory to write to", edit(func(m *module) { m.function("rtr_alloc").body = constant(opI32, 0x7fff0000) }), ""},
		{"init fails with a message", withInit(constant(opI32, 0x100), map[uint32][]byte{0x100: []byte("\x09\x00\x00\x00no threshold")}), "rtr_init: no thresh"},
		{"init fails with a number", withInit(constant(opI32, 3), nil), "rtr_init: it returned 3"},
		{"init fails with an address out of bounds", withInit(constant(opI32, -4), nil), "rtr_init: it returned 4294967292"},
		{"init fails with a length out of bounds", withInit(constant(opI32, 0x100), map[uint32][]byte{0x100: []byte("\xff\xff\xff\xff")}), "rtr_init: it returned 256"},
		{"init traps", withInit(code(opUnreachable), nil), "rtr_init: the guest trapped: unreachable"},
		{"alloc gives nothing", withInitAlloc(0), "out of memory"},
		{"alloc gives an odd address", withInitAlloc(12345), "divisible by 8"},
		{"alloc gives an address out of bounds", withInitAlloc(0x7fff0000), "not within the guest's memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			path := module{}.write(t)
			must.Succeed(t, os.WriteFile(path, tt.module, 0o600))
			handler, err := h.tryOpen(t, fmt.Sprintf("{module: %q, config: {threshold: 3}}", path))
			if tt.want == "" {
				must.Succeed(t, err)
				must.Report(t, handler.Close(t.Context()))
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want an error with the path and %q", err, tt.want)
			}
			if m := h.memory(); m != 0 {
				t.Errorf("%v bytes of memory are left", m)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		if _, err := newHost().tryOpen(t, "module: /no/such.wasm"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a huge file", func(t *testing.T) {
		path := module{}.write(t)
		must.Succeed(t, os.Truncate(path, 40<<20))
		if _, err := newHost().tryOpen(t, fmt.Sprintf("module: %q", path)); err == nil || !strings.Contains(err.Error(), "raise limits.module") {
			t.Errorf("got %v", err)
		}
	})
}

// withInitAlloc returns a guest whose rtr_alloc is called at the start and returns an address.
func withInitAlloc(address int64) []byte {
	m := guest(constant(opI64, 0))
	m.function("rtr_alloc").body = constant(opI32, address)
	m.funcs = append(m.funcs, function{name: "rtr_init", params: []byte{i32, i32}, results: []byte{i32}, body: constant(opI32, 0)})
	return m.assemble()
}

func TestVerdicts(t *testing.T) {
	const data = 4 + 3*28
	payload := events(`{"data":{"n":1}}`, `{"type":"com.example.x","subject":"s","data": [1, 2] }`)
	m := answering(encode(payload+"not yet",
		record{idx: 1, events: 2, emOff: data, emLen: uint32(len(payload))},
		record{idx: 3, verdict: 1, retry: 1500, msgOff: data + uint32(len(payload)), msgLen: 7},
		record{idx: 2, verdict: 2},
	))
	results := handle(t, newHost().open(t, moduleYAML(t, m)), plugintest.Deltas(t))
	if got := verdicts(results); got != "ok ok drop retry ok ok ok" {
		t.Errorf("got %s", got)
	}
	want := []plugins.Emit{{Data: []byte(`{"n":1}`)}, {Type: "com.example.x", Subject: "s", Data: []byte("[1, 2]")}}
	if got := results[1].Events; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the events %s", got)
	}
	if r := results[3]; plugins.RetryAfter(r.Err) != 1500*time.Millisecond || r.Err.Error() != `wasm "enrich": not yet` {
		t.Errorf("got %v after %v", r.Err, plugins.RetryAfter(r.Err))
	}
}

func TestWholeBatch(t *testing.T) {
	for code, want := range map[int64]string{0: "ok", 1: "retry", 2: "drop", 3: "fail"} {
		results := handle(t, newHost().open(t, moduleYAML(t, guest(constant(opI64, code)))), plugintest.Deltas(t)[:2])
		if got := verdicts(results); got != want+" "+want {
			t.Errorf("%d: got %s", code, got)
		}
		for _, r := range results {
			if plugins.ClassOf(r.Err) == plugins.Rejected {
				t.Errorf("%d: %v is a rejection: the route's retry counts for a verdict", code, r.Err)
			}
		}
	}
}

// TestCulprit: if a guest traps at one delta of a batch, only that delta fails, at any position. A
// new guest handles the next batch.
func TestCulprit(t *testing.T) {
	exit := guest(onDeleted(constant(opI32, 7), opCall, 0, opUnreachable))
	exit.imports = []function{{module: "wasi_snapshot_preview1", name: "proc_exit", params: []byte{i32}}}
	grow := code(constant(opI32, 100), opMemoryGrow, 0, constant(opI32, -1), opEq, opIf, empty, opUnreachable, opEnd)
	tests := []struct {
		name  string
		guest module
		want  string
	}{
		{"trap", guest(onDeleted(opUnreachable)), "trapped: unreachable"},
		{"exit", exit, "exited with code 7"},
		{"out of bounds", guest(onDeleted(constant(opI32, -8), opLoad, 2, 0, opDrop)), "trapped: out of bounds memory access"},
		{"out of memory", guest(onDeleted(grow)), "trapped: unreachable"},
		{"recursion", guest(onDeleted(opGet, 0, opGet, 1, opCall, 2, opDrop)), "nested too deeply"},
		{"garbage", guest(onDeleted(constant(opI64, 5), 0x0f)), "malformed answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.guest.memory = fewPages
			h := newHost()
			handler := h.open(t, limited(t, tt.guest, "memory: 2Mi"))
			for at := range 9 {
				batch := slices.Repeat(plugintest.Deltas(t)[:1], 9)
				batch[at] = plugintest.Deltas(t)[3]
				for i, r := range h.must(t, handler, batch...) {
					switch {
					case i != at && r.Verdict != plugins.OK:
						t.Errorf("the culprit is delta %d, but %d got %s: %v", at, i, r.Verdict, r.Err)
					case i == at && (r.Verdict != plugins.Fail || !strings.Contains(fmt.Sprint(r.Err), tt.want)):
						t.Errorf("delta %d: got %s: %v", i, r.Verdict, r.Err)
					case i == at && !strings.HasPrefix(r.Err.Error(), `wasm "enrich": `):
						t.Errorf("the error does not name the handler: %v", r.Err)
					case i == at && plugins.ClassOf(r.Err) == plugins.Rejected:
						t.Errorf("%v is a rejection: the route's retry counts for a trap", r.Err)
					}
				}
			}
			if got := verdicts(handle(t, handler, plugintest.Deltas(t)[:3])); got != "ok ok ok" {
				t.Errorf("after the trap: %s", got)
			}
		})
	}
}

// TestLarge: a batch that exceeds one call is split.
func TestLarge(t *testing.T) {
	var batch []*event.Delta
	for i := range 600 {
		batch = append(batch, &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprint("p", i), 1, 10)})
	}
	batch = append(batch, &event.Delta{
		Source: "pods", Op: event.Updated, Old: plugintest.Pod(t, "big", 1, 900<<10), New: plugintest.Pod(t, "big", 2, 900<<10),
	})
	// Drops all deltas of a call with at most 256, and traps if there are more.
	m := guest(opGet, 0, opLoad, 2, 8, constant(opI32, 257), opGeU, opIf, empty, opUnreachable, opEnd, constant(opI64, 2))
	m.memory = []byte{0, 100}
	for i, r := range handle(t, newHost().open(t, moduleYAML(t, m)), batch) {
		if r.Verdict != plugins.Drop {
			t.Fatalf("delta %d: %s %v", i, r.Verdict, r.Err)
		}
	}

	// A guest without memory for the large delta fails only that one.
	m.memory = []byte{0, 17}
	m.function("rtr_alloc").body = code(opGet, 0, constant(opI32, 1<<20), opGeU, opIf, empty, opUnreachable, opEnd, constant(opI32, inputAt))
	results := handle(t, newHost().open(t, moduleYAML(t, m)), batch[590:])
	if got := verdicts(results); got != strings.Repeat("drop ", 10)+"fail" || !strings.Contains(results[10].Err.Error(), `wasm "enrich": rtr_alloc(`) {
		t.Errorf("got %s, %v", got, results[10].Err)
	}
}

// TestTooMuchOutput: an answer may be too long for a batch, but not for each half of it.
func TestTooMuchOutput(t *testing.T) {
	// The answer has 600 KiB per delta of zeros, and so no records.
	size := code(opGet, 0, opLoad, 2, 8, constant(opI32, 600<<10), opMul, 0xad /* i64.extend_i32_u */)
	m := guest(size, constant(opI64, 0x200000<<32), 0x84 /* i64.or */)
	m.memory = []byte{0, 127}
	m.data = map[uint32][]byte{}
	if got := verdicts(handle(t, newHost().open(t, moduleYAML(t, m)), plugintest.Deltas(t))); got != "ok ok ok ok ok ok ok" {
		t.Errorf("got %s", got)
	}

	// 2 MiB for any batch.
	m = guest(constant(opI64, 0x100<<32|2<<20))
	for _, r := range handle(t, newHost().open(t, moduleYAML(t, m)), plugintest.Deltas(t)) {
		if r.Verdict != plugins.Fail || plugins.ClassOf(r.Err) != plugins.Rejected || !strings.Contains(r.Err.Error(), "too long") {
			t.Errorf("got %s: %v", r.Verdict, r.Err)
		}
	}
}

// TestRecycle: a guest with growing memory is replaced before it reaches its limit.
func TestRecycle(t *testing.T) {
	h := newHost()
	m := guest(constant(opI32, 8), opMemoryGrow, 0, constant(opI32, -1), opEq, opIf, empty, opUnreachable, opEnd, constant(opI64, 0))
	handler := h.open(t, fmt.Sprintf("{module: %q, limits: {memory: 4Mi}}", m.write(t)))
	most := 0.0
	for range 50 {
		if got := verdicts(handle(t, handler, plugintest.Deltas(t)[:1])); got != "ok" {
			t.Fatalf("got %s", got)
		}
		most = max(most, h.memory())
	}
	if most < 1<<20 || most > 4<<20 {
		t.Errorf("the guests had at most %v bytes, of 4 MiB", most)
	}
	if !strings.Contains(h.log.String(), "limits.memory") {
		t.Errorf("the log does not say what to do: %s", h.log)
	}
}

func TestConcurrent(t *testing.T) {
	h := newHost()
	h.env.Workers = 3
	m := guest(onDeleted(opUnreachable))
	m.memory = fewPages
	handler := h.open(t, moduleYAML(t, m))
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() {
			for range effort.Rounds(5, 10, 100) {
				if got := verdicts(handle(t, handler, plugintest.Deltas(t))); got != "ok ok ok fail ok ok ok" {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	callers.Wait()
	if m := h.memory(); m > 3*3*64<<10 {
		t.Errorf("%v bytes of memory for three guests", m)
	}
}
