package wasm_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// attack is a hostile module.
type attack struct {
	name string
	// The module: guest, or these bytes.
	guest module
	bytes []byte
	// The configuration in addition to the module, and further limits. By default they set less
	// than the default fuel, to save time.
	config, limits string
	// a part of the error of its first delta; empty: it has none
	want string
	// the error is that of the start
	load bool
}

// The fuel of attacks, and the memory of those that fail at the start: enough to detect a leak.
const (
	attackFuel     = 5_000_000
	attackInitFuel = 5_000_000
	loadMemory     = 4 << 30
	guestMemory    = 64 << 20 // the default
)

func (a attack) write(t *testing.T) string {
	t.Helper()
	path := a.guest.write(t)
	if a.bytes != nil {
		must.Succeed(t, os.WriteFile(path, a.bytes, 0o600))
	}
	limits, defaults := []string{a.limits}, map[string]int{"fuel": attackFuel, "initFuel": attackInitFuel}
	if a.load {
		defaults["memory"] = loadMemory
	}
	for name, n := range defaults {
		if !strings.Contains(a.limits, name+":") {
			limits = append(limits, fmt.Sprintf("%s: %d", name, n))
		}
	}
	if !strings.Contains(a.limits, "imeout:") { // it ends by its fuel on the slowest machine too
		limits = append(limits, "timeout: 1h, initTimeout: 1h")
	}
	all := []string{fmt.Sprintf("module: %q", path), "limits: {" + strings.TrimPrefix(strings.Join(limits, ", "), ", ") + "}"}
	if a.config != "" {
		all = append(all, a.config)
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// neighbour opens another handler. work checks that it has an event for each delta.
func neighbour(t *testing.T) (work func()) {
	t.Helper()
	const n = 7
	event := events(`{"data":"here"}`)
	var records []record
	for i := range n {
		records = append(records, record{idx: uint32(i), events: 1, emOff: 4 + n*28, emLen: uint32(len(event))})
	}
	handler := newHost().open(t, moduleYAML(t, answering(encode(event, records...))))
	return func() {
		results, err := handler.Handle(context.WithoutCancel(t.Context()), plugintest.Deltas(t))
		if got := data(results); err != nil || len(got) != n {
			t.Errorf("another handler has the events %q: %v", got, err)
		}
	}
}

// suffer loads the attack, and passes deltas to it, first one by one, then all at once, while
// another handler works.
func (a attack) suffer(t *testing.T, other func()) {
	t.Helper()
	h := newHost()
	before := mapped(t)
	handler, err := h.tryOpen(t, a.write(t))
	if a.load {
		if err == nil {
			_ = handler.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), a.want) || !strings.Contains(err.Error(), "guest.wasm: ") || len(err.Error()) > 8<<10 {
			t.Errorf("got %.8192v, want an error with the module's name and %q", err, a.want)
		}
		other()
		checkGone(t, h)
		noMoreMapped(t, before, loadMemory)
		return
	}
	must.Succeed(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			other()
		}
	}()
	for i, d := range plugintest.Deltas(t) {
		before := h.fuel()
		a.check(t, h.must(t, handler, d), i == 0)
		// One call, and perhaps a new guest.
		if used := h.fuel() - before; !strings.Contains(a.limits, "fuel") && used > attackFuel+attackInitFuel {
			t.Errorf("a delta took %v fuel", used)
		}
	}
	a.check(t, h.must(t, handler, plugintest.Deltas(t)...), false)
	<-done
	must.Report(t, handler.Close(context.WithoutCancel(t.Context())))
	checkGone(t, h)
}

func (h *host) must(t *testing.T, handler plugins.Handler, batch ...*event.Delta) []plugins.Result {
	t.Helper()
	results, err := handler.Handle(context.WithoutCancel(t.Context()), batch)
	if err != nil || len(results) != len(batch) {
		t.Fatalf("%d results for %d deltas: %v", len(results), len(batch), err)
	}
	return results
}

// check checks the results: errors contain the handler.
func (a attack) check(t *testing.T, results []plugins.Result, first bool) {
	t.Helper()
	for _, r := range results {
		if text := fmt.Sprint(r.Err); r.Err != nil && !strings.HasPrefix(text, `wasm "enrich": `) || len(text) > 8<<10 {
			t.Errorf("the error does not name the handler, or is too long: %.8192v", r.Err)
		}
		if first && (a.want == "" && r.Err != nil || a.want != "" && !strings.Contains(fmt.Sprint(r.Err), a.want)) {
			t.Errorf("got %s: %v, want an error with %q", r.Verdict, r.Err, a.want)
		}
	}
}

func (h *host) fuel() float64 {
	return testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestFuel.WithLabelValues(h.env.Name))
}

// checkGone checks that no memory of a handler's guests is left. TestMain checks the goroutines.
func checkGone(t *testing.T, h *host) {
	t.Helper()
	if m := h.memory(); m != 0 {
		t.Errorf("the guests have %v bytes of memory when they are gone", m)
	}
}

func sufferAll(t *testing.T, attacks []attack) {
	t.Helper()
	other := neighbour(t)
	before := mapped(t)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { a.suffer(t, other) })
	}
	// at least one guest of each
	noMoreMapped(t, before, max(uint64(len(attacks))*guestMemory, 1<<30))
}

// TestStopped runs an endless loop and an endless pointer chase, alone and in a batch, while Go's
// garbage collector waits for the guest. `go -C test/bench run ./guests` measures the wait.
func TestStopped(t *testing.T) {
	// Guarantee: guest-pauses
	t.Run("a loop", func(t *testing.T) { stopped(t, guest(forEver(), constant(opI64, 0))) })
	lines := int64(1 << 17) // 8 MiB
	if effort.Current() > effort.Fast {
		lines = 1 << 19
	}
	t.Run("pointer chase", func(t *testing.T) { stopped(t, chase(lines, 0)) })
}

func stopped(t *testing.T, m module) {
	t.Helper()
	handler := newHost().open(t, limited(t, m, "fuel: 5M"))
	for _, n := range []int{1, 2} {
		collected := make(chan time.Duration)
		go func() {
			began := time.Now()
			runtime.GC()
			collected <- time.Since(began)
		}()
		results, err := handler.Handle(t.Context(), plugintest.Deltas(t)[:n])
		must.Succeed(t, err)
		t.Logf("the collector took %v", <-collected)
		for _, r := range results {
			if r.Verdict == plugins.OK {
				t.Errorf("got %s: %v", r.Verdict, r.Err)
			}
		}
	}
}

// TestHostileStart: guests that attack during their start do no harm.
func TestHostileStart(t *testing.T) {
	// Guarantee: hostile-guest
	loop := func(name string) module {
		m := guest(constant(opI64, 0))
		if f := m.function(name); f != nil {
			f.body = append(forEver(), f.body...)
		} else {
			m.funcs = append(m.funcs, function{name: name, body: forEver()})
		}
		return m
	}
	init := func(body ...any) module {
		m := guest(constant(opI64, 0))
		m.funcs = append(m.funcs, function{name: "rtr_init", params: []byte{i32, i32}, results: []byte{i32}, locals: 1, body: code(body...)})
		return m
	}
	section := func(body ...any) module {
		m := guest(constant(opI64, 0))
		m.funcs = append(m.funcs, function{body: code(body...)})
		m.raw = map[byte][]byte{8: uleb(3)}
		return m
	}
	deep := guest(constant(opI64, 0))
	deep.funcs = append(deep.funcs, function{name: "_initialize", body: code(opCall, 3)})
	exits := guest(constant(opI64, 0))
	exits.imports = []function{{module: "wasi_snapshot_preview1", name: "proc_exit", params: []byte{i32}}}
	exits.funcs = append(exits.funcs, function{name: "_initialize", body: code(constant(opI32, 3), opCall, 0)})
	odd := guest(constant(opI64, 0))
	odd.funcs = append(odd.funcs, function{name: "_initialize", params: []byte{i32}})
	const tooMuch = "instructions: raise limits.initFuel"
	sufferAll(t, []attack{
		{name: "loop in rtr_abi_version", guest: loop("rtr_abi_version"), load: true, want: tooMuch},
		{name: "loop in rtr_alloc", guest: loop("rtr_alloc"), want: "raise limits.fuel"},
		{name: "loop in rtr_init", guest: init(forEver(), constant(opI32, 0)), load: true, want: tooMuch},
		{name: "loop in _initialize", guest: loop("_initialize"), load: true, want: tooMuch},
		{name: "loop in the start section", guest: section(forEver()), load: true, want: "its start section: out of fuel: its start takes more than 5000000 " + tooMuch},
		{name: "deep recursion in the start section", guest: section(opCall, 3), limits: "initFuel: 500M", load: true, want: "its start section: its calls are nested too deeply"},
		{name: "too little fuel for the last instructions of the start", guest: init(turns(1400), straight(300), constant(opI32, 0)), limits: "initFuel: 10k", load: true, want: "its start takes more than 10000 " + tooMuch},
		{name: "trap in the start section", guest: section(opUnreachable), load: true, want: "its start section: the guest trapped: unreachable"},
		{name: "deep recursion in _initialize", guest: deep, limits: "initFuel: 500M", load: true, want: "nested too deeply"},
		{name: "exit in _initialize", guest: exits, load: true, want: "exited with code 3"},
		{name: "_initialize with a parameter", guest: odd, load: true, want: "_initialize"},
		{name: "trap in rtr_init", guest: init(opUnreachable), load: true, want: "rtr_init: the guest trapped: unreachable"},
		{name: "a message at the end of memory", guest: init(constant(opI32, 17<<16-4)), load: true, want: "rtr_init: it returned"},
		{name: "memory.grow in rtr_init", guest: init(constant(opI32, 1<<14), opMemoryGrow, 0), load: true, want: "rtr_init: "},
	})
}

// TestHostileCode: guests that do not stop, or use all resources, are stopped.
func TestHostileCode(t *testing.T) {
	// Guarantee: hostile-guest, memory-bounded, trap-loses-event
	const fuel, deep = "raise limits.fuel", "nested too deeply"
	body := func(parts ...any) module { return guest(code(parts...), constant(opI64, 0)) }
	bulk := func(op int, args ...int64) []byte {
		var b []byte
		for _, a := range args {
			b = append(b, constant(opI32, a)...)
		}
		immediates := map[int]int{10: 2, 11: 1}[op]
		return append(append(b, 0xfc, byte(op)), make([]byte, immediates)...)
	}
	forEver := func(parts ...any) []byte { return code(opLoop, empty, code(parts...), opBr, 0, opEnd) }
	tables := body(forEver(opGet, 2, 0x0e /* br_table */, uleb(3), 0, 0, 0, 0))
	grow := func(pages int64) []byte { return code(constant(opI32, pages), opMemoryGrow, 0, opDrop) }
	many := body(forEver(grow(1)))
	many.memory = []byte{0, 17}
	sufferAll(t, []attack{
		{name: "endless loop", guest: body(forEver()), want: fuel},
		{name: "endless loop at the default fuel", guest: body(forEver()), limits: "fuel: 75M", want: fuel},
		{name: "loop of nops", guest: body(forEver(nops(1000))), want: fuel},
		{name: "loop by br_table", guest: tables, want: fuel},
		{name: "nested loops", guest: body(forEver(opLoop, empty, opGet, 2, opBrIf, 0, opEnd)), want: fuel},
		{name: "loop of divisions", guest: body(forEver(constant(opI32, 7), constant(opI32, 3), 0x6d, opDrop)), want: fuel},
		{name: "exponential tree of calls", guest: tree(40), want: fuel},
		{name: "deep recursion", guest: guest(opGet, 0, opGet, 1, opCall, 2), limits: "fuel: 500M", want: deep},
		{name: "mutual recursion", guest: mutual(), limits: "fuel: 500M", want: deep},
		{name: "recursion by call_indirect", guest: indirect(), limits: "fuel: 500M", want: deep},
		{name: "recursion by calls that do not return", guest: guest(opGet, 0, opGet, 1, opCall, 2, opUnreachable), limits: "fuel: 500M", want: deep},
		{name: "endless loop behind a call that does not return", guest: behindCold(), want: fuel},
		{name: "call_indirect of what is not there", guest: indirectTo(5), want: "trapped: "},
		{name: "recursion with a large frame", guest: largeFrame(), limits: "fuel: 500M", want: deep},
		{name: "memory bomb", guest: body(grow(900), grow(900)), limits: "fuel: 200M", want: ""},
		{name: "memory bomb of 2 GiB", guest: body(grow(1 << 15)), want: fuel},
		{name: "memory.grow in a loop", guest: many, want: fuel},
		{name: "memory.grow by nothing in a loop", guest: body(forEver(grow(0))), want: fuel},
		{name: "memory.fill in a loop", guest: body(forEver(bulk(11, 0, 1, 17<<16))), want: fuel},
		{name: "memory.fill of 4 GiB", guest: body(bulk(11, 0, 1, -1)), want: fuel},
		{name: "memory.copy in a loop", guest: body(forEver(bulk(10, 8, 0, 16<<16))), want: fuel},
		{name: "memory.copy out of bounds", guest: body(bulk(10, 17<<16-4, 0, 8)), want: "out of bounds memory access"},
		{name: "memory.copy of nothing in a loop", guest: body(forEver(bulk(10, 0, 0, 0))), want: fuel},
		{name: "table.grow in a loop", guest: tableGrow(100), want: fuel},
		{name: "table.grow by 4 Gi", guest: tableGrow(-1), want: fuel},
		{name: "trap", guest: guest(opUnreachable), want: "trapped: unreachable"},
		{name: "division by zero", guest: body(constant(opI32, 1), constant(opI32, 0), 0x6d, opDrop), want: "trapped: integer divide by zero"},
		{name: "load out of bounds", guest: body(constant(opI32, -1), opLoad, 0, 0, opDrop), want: "out of bounds memory access"},
		{name: "load with the largest offset", guest: body(constant(opI32, -1), opLoad, 0, uleb(1<<32-1), opDrop), want: "out of bounds memory access"},
		{name: "trap on deletes only", guest: guest(onDeleted(opUnreachable)), want: ""},
		{name: "trap at the third call", guest: atThird(code(opUnreachable)), want: ""},
		{name: "loop at the third call", guest: atThird(forEver()), want: ""},
	})
}

func nops(n int) []byte { return []byte(strings.Repeat("\x01", n)) }
