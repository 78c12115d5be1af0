package meter_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// TestGaps runs very long code without loops and counts the memory accesses between two pauses.
// They exceed a slice by little. The accesses are weighed, not timed: the fuel at a pause
// determines their number.
func TestGaps(t *testing.T) {
	// Guarantee: guest-pauses
	const slice = 1000
	locals := []byte{1, 2, i32}
	load := code(get, 0, 0x28, 2, 0, set, 0)                  // weight 3
	count := code(globalGet, 0, num64(1), 0x7c, globalSet, 0) // weight 4
	work := func(n int) []byte { return slices.Repeat(slices.Concat(load, count), n) }
	arg := func(f fn) fn { f.locals = locals; return f }
	// calls itself 5,000 times and has work to do after each return
	deep := func(tail []byte) mod {
		return mod{funcs: []fn{
			arg(fn{name: "f", body: code(num(5000), call, 1)}),
			{params: []byte{i32}, locals: []byte{1, 1, i32}, body: code(get, 0, ifThen, void, get, 0, num(1), sub, call, 1, end, tail)},
		}}
	}
	// two functions call each other by a type 5,000 times
	byType := func(before, behind []byte) mod {
		next := func(other int64) fn {
			return fn{params: []byte{i32}, locals: []byte{1, 1, i32}, body: code(get, 0, ifThen, void, before, get, 0, num(1), sub, num(other), callInd, 2, 0, end, behind)}
		}
		return mod{
			funcs:  []fn{arg(fn{name: "f", body: code(num(5000), call, 1)}), next(1), next(0)},
			tables: [][]byte{{0x70, 0, 2}}, elems: [][]byte{code(0, num(0), end, 2, 1, 2)},
		}
	}
	tail := slices.Concat(code(num(0), set, 0), work(3))
	// functions of which each calls the next one, once or twice, and works before or behind
	chain := func(n int, body func(next []byte) []byte) mod {
		m := mod{}
		for i := range n {
			m.funcs = append(m.funcs, fn{locals: locals, body: body(code(call, u(i+1)))})
		}
		m.funcs = append(m.funcs, fn{locals: locals, body: work(2)})
		m.funcs[0].name = "f"
		return m
	}
	leaf := func(n int) fn { return fn{locals: locals, body: work(n)} }
	tests := map[string]mod{
		"straight":             {funcs: []fn{arg(fn{name: "f", body: work(20_000)})}},
		"straight in a loop":   {funcs: []fn{arg(fn{name: "f", body: code(num(3), set, 1, loop, void, work(5000), get, 1, num(1), sub, tee, 1, brIf, 0, end)})}},
		"straight in branches": {funcs: []fn{arg(fn{name: "f", body: slices.Repeat(code(num(1), ifThen, void, work(100), elseThen, nop, end), 100)})}},
		"branches over pauses": {funcs: []fn{arg(fn{name: "f", body: slices.Repeat(code(block, void, work(100), num(1), brIf, 0, work(300), end), 100)})}},
		"calls of one behind":  {funcs: []fn{arg(fn{name: "f", body: slices.Repeat(code(call, 1), 1000)}), leaf(100)}},
		"calls of one before":  {funcs: []fn{leaf(100), arg(fn{name: "f", body: slices.Repeat(code(call, 0), 1000)})}},
		"calls of one, and an import": {
			imports: [][]byte{nopImport},
			funcs:   []fn{leaf(100), {body: code(call, 1)}, arg(fn{name: "f", body: slices.Repeat(code(call, 1), 1000)})},
		},
		"chain, work before":             chain(300, func(next []byte) []byte { return slices.Concat(work(20), next) }),
		"long chain, little work before": chain(900, func(next []byte) []byte { return slices.Concat(work(1), next) }),
		"long chain, little work behind": chain(900, func(next []byte) []byte { return slices.Concat(next, work(1)) }),
		"chain of cold calls":            chain(300, func(next []byte) []byte { return slices.Concat(work(60), next, code(unreachable)) }),
		"chain of cold calls, behind calls": chain(300, func(next []byte) []byte {
			return slices.Concat(work(10), code(call, u(300)), next, code(unreachable))
		}),
		"chain of cold calls in loops": chain(300, func(next []byte) []byte {
			return code(loop, void, work(60), num(1), ifThen, void, next, unreachable, end, br, 0, end)
		}),
		"chain, work behind": chain(300, func(next []byte) []byte { return slices.Concat(next, work(20)) }),
		"tree, work before":  chain(12, func(next []byte) []byte { return slices.Concat(work(3), next, next) }),
		"tree, work behind":  chain(12, func(next []byte) []byte { return slices.Concat(next, next, work(3)) }),
		"tree, a loop in each": chain(9, func(next []byte) []byte {
			return code(num(2), set, 1, loop, void, work(9), next, get, 1, num(1), sub, tee, 1, brIf, 0, end)
		}),
		"tree of long functions": chain(8, func(next []byte) []byte { return slices.Concat(work(120), next, work(120), next, work(120)) }),
		"calls by a table": {
			funcs:  []fn{arg(fn{name: "f", body: slices.Repeat(code(num(0), callInd, 2, 0), 1000)}), leaf(60)},
			tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 1)},
		},
		"calls by a table, in a cycle": {
			funcs: []fn{
				arg(fn{name: "f", body: slices.Repeat(code(num(0), callInd, 2, 0), 1000)}), leaf(60),
				{locals: locals, body: code(num(0), ifThen, void, num(1), callInd, 2, 0, end)},
			},
			tables: [][]byte{{0x70, 0, 2}}, elems: [][]byte{code(0, num(0), end, 2, 1, 2)},
		},
		"calls of a long one":          {funcs: []fn{leaf(5000), arg(fn{name: "f", body: slices.Repeat(code(call, 0), 10)})}},
		"returns":                      deep(tail),
		"returns to calls":             {funcs: append(deep(code(call, 2)).funcs, leaf(10))},
		"returns to calls of a caller": {funcs: append(deep(code(call, 2)).funcs, fn{body: code(call, 3)}, leaf(10))},
		"cycle by a type, work before": byType(count, nil),
		"cycle by a type, work behind": byType(nil, tail),
		"jumps forward":                {funcs: []fn{arg(fn{name: "f", body: jumps(code(work(300), num(0), set, 1, br, 0), work(300))})}},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			m.memory = []byte{0, 1}
			m.globals = [][]byte{code(i64, 1, num64(0), end)}
			m.exports = [][]byte{code(sized([]byte("work")), 3, 0)}
			g, err := instantiate(t, m.assemble(), meter.Config{Slice: slice}, wazero.NewRuntimeConfigCompiler())
			if err != nil {
				t.Fatal(err)
			}
			done := g.module.ExportedGlobal("work")
			last, most := uint64(0), uint64(0)
			look := func() {
				most = max(most, done.Get()-last)
				last = done.Get()
			}
			g.paused = look
			end, _ := g.call(t, 1<<40, "f")
			look()
			if want := map[bool]string{false: "returned", true: "trapped"}[strings.Contains(name, "cold")]; end != want || last < 500 {
				t.Errorf("%s after %d accesses", end, last)
			}
			// An access and its counter weigh 7 together.
			if limit := uint64(slice+longestGap) / 7; most > limit {
				t.Errorf("%d accesses between two pauses, want at most %d", most, limit)
			}
			t.Logf("%d of %d", most, last)
		})
	}
}

// TestChunks fills and copies much memory with one instruction. The guest pauses after each chunk,
// and the memory is the same as without chunks.
func TestChunks(t *testing.T) {
	// Guarantee: guest-pauses
	const chunk, pages = 1000, 2
	fill := code(num(3), num(0x55), num(100_000), 0xfc, 11, 0)
	ramp := code(loop, void, get, 0, get, 0, 0x3a /* i32.store8 */, 0, 0, get, 0, num(1), add, tee, 0, num(60_000), 0x49 /* lt_u */, brIf, 0, end)
	tests := map[string]struct {
		body   []byte
		pauses int
		want   func(at int) byte
		end    string
	}{
		"fill":                 {fill, 99, func(at int) byte { return map[bool]byte{true: 0x55}[at >= 3 && at < 100_003] }, "returned"},
		"fill, in a long form": {code(num(3), num(0x55), num(100_000), 0xfc, 0x8b, 0, 0), 99, func(at int) byte { return map[bool]byte{true: 0x55}[at >= 3 && at < 100_003] }, "returned"},
		"copy":                 {code(ramp, num(70_000), num(1), num(50_000), 0xfc, 10, 0, 0), 49, func(at int) byte { return byte(at - 70_000 + 1) }, "returned"},
		"copy up, overlapped":  {code(ramp, num(70), num(0), num(50_000), 0xfc, 10, 0, 0), 49, func(at int) byte { return byte(at - 70) }, "returned"},
		"copy down":            {code(ramp, num(0), num(70), num(50_000), 0xfc, 10, 0, 0), 49, func(at int) byte { return byte(at + 70) }, "returned"},
		"little":               {code(num(0), num(1), num(chunk), 0xfc, 11, 0), 0, func(int) byte { return 1 }, "returned"},
		"out of bounds":        {code(num(3), num(1), num(pages<<16), 0xfc, 11, 0), 0, func(int) byte { return 0 }, "trapped"},
		"copy from beyond":     {code(num(0), num(3), num(pages<<16), 0xfc, 10, 0, 0), 0, func(int) byte { return 0 }, "trapped"},
		"far beyond":           {code(num(-1), num(1), num(-1), 0xfc, 11, 0), 0, func(int) byte { return 0 }, "trapped"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := mod{funcs: []fn{{name: "f", locals: []byte{1, 1, i32}, body: tt.body}}, memory: []byte{0, pages}}
			m.exports = [][]byte{code(sized([]byte("memory")), 2, 0)}
			g, err := instantiate(t, m.assemble(), meter.Config{Slice: 1 << 40, Chunk: chunk}, wazero.NewRuntimeConfigCompiler())
			if err != nil {
				t.Fatal(err)
			}
			pauses := 0
			g.paused = func() { pauses++ }
			if end, _ := g.call(t, 1<<40, "f"); end != tt.end || pauses != tt.pauses {
				t.Errorf("%s after %d pauses, want %s after %d", end, pauses, tt.end, tt.pauses)
			}
			memory, _ := g.module.Memory().Read(0, pages<<16)
			for at, b := range memory {
				from, to := 0, len(memory)
				switch name {
				case "copy":
					from, to = 70_000, 120_000
				case "copy up, overlapped":
					from, to = 70, 50_070
				case "copy down":
					to = 50_000
				case "little":
					to = chunk
				}
				if at >= from && at < to && b != tt.want(at) {
					t.Fatalf("at %d is %#x, want %#x", at, b, tt.want(at))
				}
			}
		})
	}
}
