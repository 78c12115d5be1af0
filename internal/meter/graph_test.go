package meter_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// TestDepth measures the native stack of recursions in which not every function counts its own
// frame, until they are stopped.
func TestDepth(t *testing.T) {
	// Guarantee: guest-memory
	const limit = 1 << 20
	load := code(num(0), 0x28, 2, 0)
	store := code(set, 0, num(0), get, 0, 0x36, 2, 0)
	one := []byte{1, 1, i32}
	// holds many values at a time, so its frame is large, but calls nothing meanwhile
	large := code(slices.Repeat(load, 1000), slices.Repeat(store, 1000))
	cold := func(callee int) []byte { return code(num(1), ifThen, void, call, u(callee), unreachable, end) }
	// a chain of functions of which each calls the next one
	chain := func(n int, last ...fn) mod {
		m := mod{}
		for i := range n {
			m.funcs = append(m.funcs, fn{params: slices.Repeat([]byte{i64}, 8), body: code(slices.Repeat(code(get, 0), 8), call, u(i+1))})
		}
		m.funcs = append(m.funcs, last...)
		first := slices.Concat(slices.Repeat(num64(0), 8), code(call, 0))
		m.funcs = append(m.funcs, fn{name: "f", body: first})
		return m
	}
	eight := slices.Repeat([]byte{i64}, 8)
	// holds many values across a call, and does not count its frame
	holds := func(callee int) fn {
		return fn{locals: one, body: code(slices.Repeat(load, 150), call, u(callee), slices.Repeat(store, 150))}
	}
	byType := fn{body: code(num(0), callInd, 0, 0)}
	long := func(n int) mod {
		m := mod{oneType: true}
		for i := range n {
			m.funcs = append(m.funcs, fn{body: code(slices.Repeat([]byte{nop}, 50), call, u(i+1))})
		}
		m.funcs = append(m.funcs, fn{})
		m.funcs[0].name = "f"
		return m
	}
	tests := map[string]mod{
		"cold calls of a large function":     {funcs: []fn{{name: "f", locals: one, body: code(cold(0), large)}}},
		"cold calls of two large functions":  {funcs: []fn{{name: "f", locals: one, body: code(cold(1), large)}, {locals: one, body: code(cold(0), large)}}},
		"cold calls behind a call":           {funcs: []fn{{name: "f", locals: one, body: code(call, 1, large)}, {locals: one, body: code(cold(0), large)}}},
		"cold calls behind a large function": {funcs: []fn{{name: "f", locals: one, body: code(large, call, 1)}, {body: cold(0)}}},
		"cold calls of one that calls":       {funcs: []fn{{name: "f", locals: []byte{1, 60, i64}, body: code(call, 1, cold(0))}, {}}},
		"cold calls behind small functions":  {funcs: []fn{{name: "f", body: code(call, 1)}, {body: code(call, 2)}, {body: code(call, 3)}, {locals: one, body: code(cold(0), large)}}},
		"cold calls by a table":              {funcs: []fn{{name: "f", locals: one, body: code(num(1), ifThen, void, num(0), callInd, 0, 0, unreachable, end, large)}}, tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 0)}},
		"calls by a table and large ones":    {funcs: []fn{{name: "f", locals: one, body: code(num(0), callInd, 0, 0, large)}}, tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 0)}},
		"a chain":                            long(9000),
		"a chain with a recursion":           chain(30, fn{params: eight, body: code(call, 31)}, fn{body: code(slices.Repeat(num64(0), 8), call, 0)}),
		"a chain with a cold recursion":      chain(30, fn{params: eight, locals: one, body: code(num(1), ifThen, void, slices.Repeat(num64(0), 8), call, 0, unreachable, end)}),
		"a chain with a large, cold one":     chain(5, fn{params: eight, locals: []byte{1, 1, i32}, body: code(num(1), ifThen, void, slices.Repeat(num64(0), 8), call, 0, unreachable, end, slices.Repeat(load, 1000), slices.Repeat(code(set, 8, num(0), get, 8, 0x36, 2, 0), 1000))}),
		"functions of a type in two cycles":  {funcs: []fn{{name: "f", body: byType.body}, holds(2), byType, holds(4), byType}, tables: [][]byte{{0x70, 0, 2}}, elems: [][]byte{code(0, num(0), end, 2, 1, 3)}},
		"two functions of a cycle and large": {funcs: []fn{{name: "f", locals: one, body: code(call, 1, large)}, {body: code(call, 2)}, {body: code(call, 0)}}},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			m.memory = []byte{0, 1}
			g, err := instantiate(t, m.assemble(), meter.Config{Stack: limit, Slice: 40_000}, wazero.NewRuntimeConfigCompiler())
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			end, _ := g.call(t, 1<<40, "f")
			runtime.ReadMemStats(&after)
			stack := (after.TotalAlloc - before.TotalAlloc) / 2
			t.Logf("%.1f times the limit", float64(stack)/limit)
			if end != "out of stack" {
				t.Errorf("it ended: %s", end)
			}
			if stack > 2*limit {
				t.Errorf("%d MiB of native stack, %.1f times the limit", stack>>20, float64(stack)/limit)
			}
		})
	}
}

// TestDepthOfHost stops recursions through a function of the host that begins a new delta, as for a
// command that reads its next line, or that calls the guest.
func TestDepthOfHost(t *testing.T) {
	// Guarantee: guest-memory
	again := code(num(1), ifThen, void, call, 1, unreachable, end)
	tests := map[string]mod{
		"a cold call":           {funcs: []fn{{name: "f", body: code(call, 0, again)}}},
		"a cold call, by two":   {funcs: []fn{{name: "f", body: code(call, 2, again)}, {body: code(call, 0)}}},
		"a cold call by a type": {funcs: []fn{{name: "f", body: code(num(0), callInd, 0, 0, again)}}, tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 0)}},
		"a call":                {funcs: []fn{{name: "f", body: code(call, 0, call, 1)}}},
		"calls back":            {funcs: []fn{{name: "f", body: code(call, 0)}}},
		"calls back, by two":    {funcs: []fn{{name: "f", body: code(call, 2)}, {body: code(call, 0)}}},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			m.imports = [][]byte{nopImport}
			out, err := meter.Rewrite(m.assemble(), meter.Config{Stack: 64 << 10, Slice: 40_000})
			if err != nil {
				t.Fatal(err)
			}
			r := wazero.NewRuntime(t.Context())
			t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) })
			var stack api.MutableGlobal
			calls := 0
			host := func(ctx context.Context, in api.Module) {
				if calls++; calls > 10_000 {
					panic("the recursion has no end")
				}
				if name[:5] != "calls" {
					stack.Set(0)
				} else if _, err := in.ExportedFunction("f").Call(ctx); err != nil {
					panic(err)
				}
			}
			if _, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(host).Export("nop").Instantiate(t.Context()); err != nil {
				t.Fatal(err)
			}
			in, err := r.Instantiate(t.Context(), out.Code)
			if err != nil {
				t.Fatal(err)
			}
			if err := newPauser(t, r, out.Slice).start(t.Context(), in, out); err != nil {
				t.Fatal(err)
			}
			stack = in.ExportedGlobal(out.Stack).(api.MutableGlobal)
			in.ExportedGlobal(out.Fuel).(api.MutableGlobal).Set(1 << 40)
			if _, err := in.ExportedFunction("f").Call(t.Context()); err == nil || int32(stack.Get()) <= out.StackLimit {
				t.Errorf("after %d calls of the host and a stack of %d: %v", calls, int32(stack.Get()), err)
			}
		})
	}
}

// TestDepthByType shows that the frames of functions that call each other through a table count as
// they do without a table, where the last function counts its stack.
func TestDepthByType(t *testing.T) {
	// Guarantee: guest-memory
	const n = 8
	depth := func(next func(i int) []byte) (most int32) {
		m := mod{tables: [][]byte{{0x70, 0, n}}, elems: [][]byte{code(0, num(0), end, n, []byte{0, 1, 2, 3, 4, 5, 6, 7})}}
		for i := range n - 1 { // types that differ: no cycle
			m.funcs = append(m.funcs, fn{params: slices.Repeat([]byte{i32}, i), locals: []byte{1, 60, i64}, body: code(slices.Repeat(num(0), i+1), next(i+1))})
		}
		m.funcs[0].name = "f"
		// recursive, so it pauses at its entry
		m.funcs = append(m.funcs, fn{params: slices.Repeat([]byte{i32}, n-1), body: code(get, 0, ifThen, void, slices.Repeat(num(0), n-1), call, n-1, end)})
		g, err := instantiate(t, m.assemble(), meter.Config{Slice: 1}, wazero.NewRuntimeConfigInterpreter())
		if err != nil {
			t.Fatal(err)
		}
		g.paused = func() { most = max(most, int32(g.stack.Get())) }
		if end, _ := g.call(t, 1<<20, "f"); end != "returned" {
			t.Error(end)
		}
		return most
	}
	direct := depth(func(i int) []byte { return code(call, i) })
	byType := depth(func(i int) []byte { return code(num(int64(i)), callInd, u(i+1), 0) })
	if direct < (n-1)*32 || byType < direct {
		t.Errorf("%d bytes of stack in use, and %d with calls by a table", direct, byType)
	}
}

// TestColdFuel shows that a guest pays for the loop before a cold call, and that the called
// function pauses and pays.
func TestColdFuel(t *testing.T) {
	const rounds = 1000
	count := code(get, 0, num(1), sub, tee, 0)
	tests := map[string]struct {
		body []byte
		want string
		used int64
	}{
		"returns":          {code(loop, void, count, num(0), 0x46 /* eq */, ifThen, void, call, 1, unreachable, end, br, 0, end), "trapped", 10 * rounds},
		"loops":            {code(loop, void, count, num(0), 0x46, ifThen, void, call, 2, unreachable, end, br, 0, end), "out of fuel", 1 << 20},
		"loops, by a type": {code(loop, void, count, num(0), 0x46, ifThen, void, num(0), callInd, 3, 0, unreachable, end, br, 0, end), "out of fuel", 1 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := mod{
				funcs:  []fn{{name: "f", params: []byte{i32}, body: tt.body}, {}, {body: forever()}},
				tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 2)},
			}
			g, err := instantiate(t, m.assemble(), meter.Config{Slice: 1000}, wazero.NewRuntimeConfigCompiler())
			if err != nil {
				t.Fatal(err)
			}
			pauses := 0
			g.paused = func() { pauses++ }
			got, used := g.call(t, 1<<20, "f", rounds)
			if got != tt.want || used < tt.used {
				t.Errorf("%s with %d, want %s with at least %d", got, used, tt.want, tt.used)
			}
			if want := int(tt.used/1100) - 1; pauses < want {
				t.Errorf("%d pauses, want at least %d", pauses, want)
			}
			g.slice, g.paused = 1<<20, nil
			if end, again := g.call(t, 1<<20, "f", rounds); end != got || again != used {
				t.Errorf("%s with %d, in one slice %s with %d", got, used, end, again)
			}
		})
	}
}

// TestFuelOfSlices shows that neither the fuel nor the effects of a call depend on the places of
// its pauses.
func TestFuelOfSlices(t *testing.T) {
	const much = 1 << 24
	down := code(get, 0, num(1), sub, tee, 0, brIf, 0, end)
	tests := map[string][]byte{
		"fills in a loop":  code(loop, void, num(0), num(1), num(9000), 0xfc, 11, 0, down),
		"copies in a loop": code(loop, void, num(9), num(0), num(9000), 0xfc, 10, 0, 0, down),
		"a loop":           code(loop, void, down),
		"calls in a loop":  code(loop, void, num(5), call, 1, down),
		"recursion":        code(get, 0, call, 2, drop),
		"cycle of two":     code(get, 0, num64(1), call, 3),
	}
	// Both count their calls in memory before they call, and again afterwards.
	here := code(num(0), num(0), 0x28, 2, 0, num(1), add, 0x36, 2, 0)
	again := func(calls []byte) []byte {
		return code(here, get, 0, ifThen, void, get, 0, num(1), sub, calls, end, here)
	}
	recursion := []fn{
		{params: []byte{i32}, results: []byte{i32}, body: code(again(code(call, 2, drop)), get, 0)},
		{params: []byte{i32, i64}, body: again(code(call, 4))},
		{params: []byte{i32}, body: again(code(num64(2), call, 3))},
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			m := mod{memory: []byte{0, 1}, exports: [][]byte{code(sized([]byte("memory")), 2, 0)}}
			m.funcs = append([]fn{{name: "f", params: []byte{i32}, body: body}, {params: []byte{i32}, body: code(loop, void, down)}}, recursion...)
			g, err := instantiate(t, m.assemble(), meter.Config{Slice: 1 << 30, Chunk: 1000}, wazero.NewRuntimeConfigCompiler())
			if err != nil {
				t.Fatal(err)
			}
			memory, _ := g.module.Memory().Read(0, 1<<16)
			clear(memory)
			end, want := g.call(t, much, "f", 100)
			written := bytes.Clone(memory)
			rng := rand.New(rand.NewPCG(1, 2))
			for range 100 {
				g.slice = rng.Int64N(1 << 20)
				pauses := 0
				g.paused = func() {
					pauses++
					g.slice = rng.Int64N(1 << rng.IntN(20))
				}
				clear(memory)
				if got, used := g.call(t, much, "f", 100); got != end || used != want || !bytes.Equal(memory, written) {
					t.Fatalf("%s with %d and %x, after %d pauses; %s with %d and %x without", got, used, memory[:4], pauses, end, want, written[:4])
				}
				// the last unit too
				if got, used := g.call(t, want-1, "f", 100); got != "out of fuel" {
					t.Fatalf("%s with %d of %d", got, used, want)
				}
			}
		})
	}
}

// TestManyCalls rewrites modules with many functions that call each other in many ways.
func TestManyCalls(t *testing.T) {
	all := func(n int) (b []byte) {
		for i := range n {
			b = append(b, code(call, u(i))...)
		}
		return b
	}
	tests := map[string]func() mod{
		"a chain": func() (m mod) {
			for i := range 99_999 {
				m.funcs = append(m.funcs, fn{body: code(call, u(i+1))})
			}
			m.funcs = append(m.funcs, fn{})
			return m
		},
		"a ring": func() (m mod) {
			for i := range 100_000 {
				m.funcs = append(m.funcs, fn{body: code(call, u((i+1)%100_000))})
			}
			return m
		},
		"each calls each": func() (m mod) {
			for range 200 {
				m.funcs = append(m.funcs, fn{body: all(200)})
			}
			return m
		},
		"each calls all before": func() (m mod) {
			for i := range 200 {
				m.funcs = append(m.funcs, fn{body: all(i)})
			}
			return m
		},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			mm := m()
			mm.oneType = true
			if _, err := meter.Rewrite(mm.assemble(), meter.Config{Slice: 40_000}); err != nil {
				t.Error(err)
			}
		})
	}
}
