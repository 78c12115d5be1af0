package meter_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// TestNativeStack measures the native stack of endless recursions until they are stopped. Their
// frames hold as much as possible for their estimated size. The engine doubles the stack whenever
// it is too small, so it has allocated twice the final size.
func TestNativeStack(t *testing.T) {
	// Guarantee: guest-memory
	const limit = 4 << 20
	results := slices.Repeat([]byte{i32}, 999)
	held := func(n int, value, drop []byte) []byte { // values that are live across a call
		return code(slices.Repeat(value, n), call, 0, slices.Repeat(drop, n))
	}
	load := code(num(0), 0x28, 2, 0)
	vectorLoad := code(num(0), 0xfd, 0, 4, 0)
	store := code(set, 0, num(0), get, 0, 0x36, 2, 0)
	vectorStore := code(set, 1, num(0), get, 1, 0xfd, 11, 4, 0)
	locals := []byte{2, 1, i32, 1, 0x7b}
	tests := map[string]mod{
		"nothing": {funcs: []fn{{name: "f", body: code(call, 0)}}},
		"fib":     {funcs: []fn{{name: "f", body: code(num(1), call, 1, drop)}, {params: []byte{i32}, results: []byte{i32}, body: code(get, 0, call, 1, get, 0, add)}}},
		"many results": {funcs: []fn{
			{name: "f", body: code(call, 1, call, 0, slices.Repeat([]byte{drop}, 999))},
			{results: results, body: slices.Repeat(code(num(0), 0x28, 2, 0), 999)},
		}},
		"many results of many calls": {funcs: []fn{
			{name: "f", body: code(slices.Repeat(code(call, 1), 20), call, 0, slices.Repeat(store, 20*999)), locals: locals},
			{results: results, body: slices.Repeat(load, 999)},
		}},
		"one result of many calls": {funcs: []fn{
			{name: "f", body: held(1000, code(call, 1), store), locals: locals},
			{results: []byte{i32}, body: load},
		}},
		// Few instructions hold and pass many values.
		"results of many calls that are passed on": {funcs: []fn{
			{name: "f", body: code(slices.Repeat(code(call, 1), 20), call, 0, slices.Repeat(code(call, 2), 20))},
			{results: results, body: slices.Repeat(load, 999)},
			{params: results},
		}},
		"results that are passed on": {funcs: []fn{
			{name: "f", body: code(call, 1, call, 2)},
			{results: results, body: slices.Repeat(load, 999)},
			{params: results, body: code(call, 0)},
		}},
		"loads":         {funcs: []fn{{name: "f", body: held(1000, load, store), locals: locals}}},
		"sizes":         {funcs: []fn{{name: "f", body: held(1000, code(0x3f, 0), store), locals: locals}}},
		"vectors":       {funcs: []fn{{name: "f", body: held(1000, vectorLoad, vectorStore), locals: locals}}},
		"many operands": {funcs: []fn{{name: "f", body: code(num(0), slices.Repeat(load, 998), call, 1)}, {params: results, body: code(call, 0)}}},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			m.memory = []byte{0, 1}
			g, err := instantiate(t, m.assemble(), meter.Config{Stack: limit}, wazero.NewRuntimeConfigCompiler())
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

// TestDepthWithPauses shows that the second frame of a function that begins anew after a pause
// counts: with a pause at each entry a recursion is stopped at half the depth.
func TestDepthWithPauses(t *testing.T) {
	// Guarantee: guest-memory
	m := mod{
		globals: [][]byte{code(i32, 1, num(0), end)}, exports: [][]byte{code(sized([]byte("depth")), 3, 0)},
		funcs: []fn{{name: "f", body: code(num(0), call, 1)}, {params: []byte{i32}, body: code(globalGet, 0, num(1), add, globalSet, 0, num(0), call, 1)}},
	}
	depth := func(slice int64) uint64 {
		g, err := instantiate(t, m.assemble(), meter.Config{Stack: 64 << 10, Slice: slice}, wazero.NewRuntimeConfigCompiler())
		if err != nil {
			t.Fatal(err)
		}
		if end, _ := g.call(t, 1<<40, "f"); end != "out of stack" {
			t.Error(end)
		}
		return g.module.ExportedGlobal("depth").Get()
	}
	if with, without := depth(1), depth(1<<40); without < 100 || with < without/3 || with > without/2+1 {
		t.Errorf("%d calls with pauses, and %d without", with, without)
	}
}
