package meter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// BenchmarkWeights measures the nanoseconds per unit of fuel of the instructions that take longest
// for their weight. A pause reads the clock, so the weights need not be times; but the slowest
// instruction and the largest slice determine how long Go may have to wait for a guest.
func BenchmarkWeights(b *testing.B) {
	const pages, base = 1100, 1 << 20 // a little more than 64 MiB
	random := code(get, 1, num(1664525), 0x6c /* mul */, num(1013904223), add, tee, 1)
	address := code(random, num(0x3ffffc0), 0x71 /* and */) // a cache line
	denormal := code(0x44, 1, slices.Repeat([]byte{0}, 7))  // f64.const
	denormal[1], denormal[8] = 1, 0
	tests := map[string][]byte{
		"add":                    code(get, 1, num(3), add, set, 1),
		"mul":                    code(random, drop),
		"load":                   code(get, 1, num(0xfff), 0x71, 0x28, 2, 0, set, 1),
		"chase":                  code(get, 2, slices.Repeat([]byte{0x28, 2, 0}, 20), set, 2),
		"random load":            code(num(64), address, 0x28, 2, 0, 0x36, 2, 0),
		"random store":           code(address, num(1), 0x36, 2, 0),
		"store and load, pages":  code(num(0xffe), get, 0, 0x36, 0, 0, num(0xffe), 0x28, 0, 0, drop),
		"random copy of 8":       code(address, address, num(8), 0xfc, 10, 0, 0),
		"fill of 64":             code(num(64), num(1), num(64), 0xfc, 11, 0),
		"ref.func and table.set": code(num(0), 0xd2, 0, 0x26, 0),
		"br_table":               code(block, void, block, void, block, void, block, void, random, num(24), 0x76 /* shr_u */, num(3), 0x71, brTable, 3, 0, 1, 2, 3, end, end, end, end),
		"sqrt":                   code(num(64), get, 1, 0xb7 /* f64.convert_i32_s */, 0x9f, 0x39 /* f64.store */, 3, 0),
		"division of denormals":  code(num(64), denormal, get, 1, 0xb7, 0xa3, 0x39, 3, 0),
		"division":               code(get, 1, num(3), 0x6e, set, 1),
		"call_indirect":          code(num(1), callInd, 3, 0),
	}
	for name, body := range tests {
		b.Run(name, func(b *testing.B) {
			m := mod{
				funcs: []fn{
					{name: "f", params: []byte{i32}, locals: []byte{1, 2, i32}, body: code(num(base), set, 2,
						loop, void, slices.Repeat(body, 10), get, 0, num(1), sub, tee, 0, brIf, 0, end)},
					// a cycle of all cache lines
					{name: "init", locals: []byte{1, 1, i32}, body: code(loop, void,
						num(base), get, 0, num(6), 0x74, add,
						num(base), get, 0, num(1664525), 0x6c, num(1013904223), add, num(1<<20-1), 0x71, num(6), 0x74, add, 0x36, 2, 0,
						get, 0, num(1), add, tee, 0, num(1<<20), 0x49, brIf, 0, end)},
				},
				tables: [][]byte{{0x70, 0, 2}}, memory: append([]byte{0}, u(pages)...),
			}
			m.exports = [][]byte{code(sized([]byte("t")), 1, 0)}
			if name == "call_indirect" {
				m.funcs = append(m.funcs, fn{})
				m.elems = [][]byte{code(0, num(1), end, 1, 2)}
			}
			r := wazero.NewRuntime(b.Context())
			defer r.Close(b.Context())
			mm, err := meter.Rewrite(m.assemble(), meter.Config{Init: 1 << 60, Slice: 40_000})
			if err != nil {
				b.Fatal(err)
			}
			in, err := r.Instantiate(b.Context(), mm.Code)
			if err != nil {
				b.Fatal(err)
			}
			if err := newPauser(b, r, mm.Slice).start(b.Context(), in, mm); err != nil {
				b.Fatal(err)
			}
			if _, err := in.ExportedFunction("init").Call(b.Context()); err != nil {
				b.Fatal(err)
			}
			c := countersOf(in, mm)
			best := time.Hour.Seconds()
			for b.Loop() {
				c.fill(1<<60, mm.Slice)
				began := time.Now()
				if _, err := in.ExportedFunction("f").Call(b.Context(), 100); err != nil {
					b.Fatal(err)
				}
				best = min(best, float64(time.Since(began).Nanoseconds())/float64(1<<60-c.left()))
			}
			b.ReportMetric(best, "ns/fuel")
		})
	}
}
