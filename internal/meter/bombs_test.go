package meter_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/meter"
)

func i32Locals(n int) []byte { return slices.Concat([]byte{1}, u(n), []byte{i32}) }

// liveLocals is a function of consecutive loops. Its locals live through all of them.
func liveLocals(locals, loops int) fn {
	var body []byte
	for i := range loops {
		body = append(body, code(loop, void, get, u(i%locals), num(1), add, set, u(i%locals), num(0), brIf, 0, end)...)
	}
	for i := range locals {
		body = append(body, code(get, u(i), drop)...)
	}
	return fn{name: "f", locals: i32Locals(locals), body: body}
}

// nestedLoops is a body of nested loops.
func nestedLoops(depth int, body []byte) []byte {
	return code(slices.Repeat([]byte{loop, void}, depth), body, num(0), brIf, 0, slices.Repeat([]byte{end}, depth))
}

// chain is a function of loads. Each load uses the address that the load before returned.
func chain(loads int) fn {
	return fn{name: "f", params: []byte{i32}, body: code(get, 0, slices.Repeat([]byte{0x28, 2, 0}, loads), drop)}
}

// TestCompileBombs tests modules that cost the compiler much more than their size suggests.
// BenchmarkCompileBombs measures the accepted ones: some seconds and 600 MB at most.
func TestCompileBombs(t *testing.T) {
	// Guarantee: guest-memory
	for name, b := range bombs() {
		t.Run(name, func(t *testing.T) {
			if _, err := meter.Rewrite(b.passes.assemble(), meter.Config{Slice: 40_000}); err != nil {
				t.Errorf("what is just below the limits is refused: %v", err)
			}
			if _, err := meter.Rewrite(b.bomb.assemble(), meter.Config{Slice: 40_000}); err == nil || !strings.Contains(err.Error(), "too large to compile") {
				t.Errorf("got %v", err)
			}
		})
	}
}

type bomb struct{ bomb, passes mod }

func bombs() map[string]bomb {
	one := func(f fn) mod { return mod{funcs: []fn{f}, memory: []byte{0, 1}} }
	times := func(n int, f fn) mod {
		m := one(f)
		f.name = ""
		m.funcs = append(m.funcs, slices.Repeat([]fn{f}, n-1)...)
		return m
	}
	increments := func(locals int) (b []byte) {
		for i := range locals {
			b = append(b, code(get, u(i), num(1), add, set, u(i))...)
		}
		return b
	}
	ifs := func(locals, n int) (b []byte) {
		for i := range n {
			b = append(b, code(get, u(i%locals), ifThen, void, num(1), set, u(i%locals), end)...)
		}
		return b
	}
	calls := func(n int) mod { return mod{funcs: []fn{{name: "f", body: slices.Repeat(code(call, 1), n)}, {}}} }
	// The functions of the type call each other.
	indirect := code(num(0), callInd, 2, 0)
	byType := func(n int) mod {
		return mod{
			funcs:  []fn{{name: "f", params: []byte{i32}, body: slices.Repeat(indirect, n)}, {body: indirect}, {body: indirect}},
			tables: [][]byte{{0x70, 0, 2}}, elems: [][]byte{code(0, num(0), end, 2, 1, 2)},
		}
	}
	return map[string]bomb{
		"locals that live through loops":  {one(liveLocals(400, 9000)), one(liveLocals(400, 1700))},
		"four times that":                 {times(4, liveLocals(400, 9000)), times(4, liveLocals(400, 1700))},
		"many of them":                    {times(40, liveLocals(10, 1999)), times(15, liveLocals(10, 1999))},
		"nested loops":                    {one(fn{name: "f", body: nestedLoops(9000, nil)}), one(fn{name: "f", body: nestedLoops(2300, nil)})},
		"nested loops with locals":        {one(fn{name: "f", locals: i32Locals(1000), body: nestedLoops(2300, increments(1000))}), one(fn{name: "f", locals: i32Locals(200), body: nestedLoops(2300, increments(200))})},
		"locals that live through joins":  {one(fn{name: "f", locals: i32Locals(1000), body: ifs(1000, 11_000)}), one(fn{name: "f", locals: i32Locals(350), body: ifs(350, 11_000)})},
		"calls":                           {calls(150_000), calls(110_000)},
		"calls by a type":                 {byType(150_000), byType(100_000)},
		"fills":                           {one(fn{name: "f", body: slices.Repeat(code(num(0), num(0), num(0), 0xfc, 11, 0), 80_000)}), one(fn{name: "f", body: slices.Repeat(code(num(0), num(0), num(0), 0xfc, 11, 0), 5900)})},
		"a long chain of loads":           {one(chain(650_000)), one(chain(130_000))},
		"many long chains of loads":       {times(80, chain(130_000)), times(50, chain(130_000))},
		"a table of branches with values": {one(fn{name: "f", body: code(num(0), brTable, u(200_000), make([]byte, 200_001))}), one(fn{name: "f", body: code(num(0), brTable, u(40_000), make([]byte, 40_001))})},
	}
}
