package meter_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// meteredGuest is an instance of a rewritten module.
type meteredGuest struct {
	module api.Module
	limit  int32
	counters
	*pauser
}

// nopImport is the import of a function that does nothing.
var nopImport = slices.Concat(sized([]byte("host")), sized([]byte("nop")))

func instantiate(t *testing.T, module []byte, cfg meter.Config, config wazero.RuntimeConfig) (*meteredGuest, error) {
	t.Helper()
	m, err := meter.Rewrite(module, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := wazero.NewRuntimeWithConfig(t.Context(), config.WithMemoryLimitPages(1024))
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) })
	if _, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(func() {}).Export("nop").Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, err := r.Instantiate(t.Context(), m.Code)
	if err != nil {
		return nil, err
	}
	p := newPauser(t, r, m.Slice)
	if err := p.start(t.Context(), in, m); err != nil {
		return nil, err
	}
	return &meteredGuest{pauser: p, module: in, limit: m.StackLimit, counters: countersOf(in, m)}, nil
}

// call gives the guest fuel, calls a function, and returns how the call ended and the fuel used.
func (g *meteredGuest) call(t *testing.T, fuel int64, name string, args ...uint64) (end string, used int64) {
	t.Helper()
	g.fill(fuel, g.slice)
	_, err := g.module.ExportedFunction(name).Call(t.Context(), args...)
	left := g.left()
	switch {
	case left < 0: // the last instructions may be executed before they are paid
		end = "out of fuel"
	case err == nil:
		end = "returned"
	case int32(g.stack.Get()) > g.limit:
		end = "out of stack"
	default:
		end = "trapped"
	}
	return end, fuel - left
}

func forever(body ...any) []byte { return code(loop, void, code(body...), br, 0, end) }

// jumps is a function of two blocks in the form that Go's compiler writes: local 1 selects the next
// block.
func jumps(first, second []byte) []byte {
	return code(loop, void, block, void, block, void, get, 1, brTable, 1, 0, 1, end, first, end, second, end)
}

// once reports the tests of TestStopped in which a single instruction costs more than all the fuel,
// so that the guest never pauses before it.
func once(name string) bool {
	return name == "memory.fill of all memory" || name == "memory.fill of more than there is" || name == "memory.grow of too much"
}

// TestStopped shows that no guest runs for ever or far beyond its fuel, and that no guest runs for
// long without a pause.
func TestStopped(t *testing.T) {
	// Guarantee: guest-pauses
	one := func(body ...any) mod {
		return mod{funcs: []fn{{name: "f", locals: []byte{1, 4, i32}, body: code(body...)}}, memory: []byte{0, 1}, tables: [][]byte{{0x70, 0, 10}}}
	}
	tree := one(call, 1, call, 1) // each level calls twice as many functions
	for i := 2; i < 40; i++ {
		tree.funcs = append(tree.funcs, fn{body: code(call, u(i), call, u(i))})
	}
	tree.funcs = append(tree.funcs, fn{})
	passive := one(forever(num(0), num(0), num(60_000), 0xfc, 8, 0, 0))
	passive.data = [][]byte{append([]byte{1}, sized(make([]byte, 60_000))...)}
	elems := one(forever(num(0), num(0), num(9), 0xfc, 12, 0, 0))
	elems.elems = [][]byte{append([]byte{1, 0}, vec([][]byte{{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}})...)}
	grown := one(num(1023), 0x40, 0, drop, forever(num(0), num(0), num(64<<20), 0xfc, 11, 0))

	tests := []struct {
		name   string
		module mod
		want   string
	}{
		{"loop of jumps", one(jumps(code(num(1), set, 1, br, 1), code(num(0), set, 1, br, 0))), "out of fuel"},
		{"loop of jumps, one of them the default", one(jumps(code(num(2), set, 1, br, 1), code(num(0), set, 1, br, 0))), "out of fuel"},
		{"jump back to the default", one(num(1), set, 1, loop, void, block, void, block, void, get, 1, brTable, 1, 1, 0, end, num(6), set, 1, br, 1, end, end), "out of fuel"},
		{"jump back with what seems to be forward", one(jumps(code(num(1), set, 2, br, 1), nil)), "out of fuel"},
		{"jump back with what was set before", one(jumps(code(num(1), set, 1, num(0), set, 1, br, 1), nil)), "out of fuel"},
		{"jump back on a condition", one(jumps(code(num(1), brIf, 1), nil)), "out of fuel"},
		{"jump back by a table", one(jumps(code(num(0), brTable, 1, 1, 1), nil)), "out of fuel"},
		{"loop with a parameter", mod{
			funcs: []fn{{name: "f", body: code(num(3), loop, 1, br, 0, end, drop)}, {params: []byte{i32}, results: []byte{i32}, body: code(get, 0)}},
		}, "out of fuel"},
		{"endless loop", one(forever()), "out of fuel"},
		{"endless loop in dead code's place", one(forever(nop, nop, block, void, end)), "out of fuel"},
		{"loop by br_if", one(loop, void, num(1), brIf, 0, end), "out of fuel"},
		{"loop by br_table", one(loop, void, num(0), brTable, 1, 0, 0, end), "out of fuel"},
		{"loop by br_table through blocks", one(loop, void, block, void, block, void, get, 0, brTable, 1, 0, 1, end, br, 1, end, br, 0, end), "out of fuel"},
		{"loop by br_table, second block", one(loop, void, block, void, block, void, num(1), brTable, 1, 0, 1, end, br, 1, end, br, 0, end), "out of fuel"},
		{"inner loop left and entered", one(loop, void, loop, void, num(0), brIf, 0, br, 1, end, end), "out of fuel"},
		{"loop in an else", one(num(0), ifThen, void, elseThen, forever(), end), "out of fuel"},
		{"exponential calls", tree, "out of fuel"},
		{"recursion", one(call, 0), "out of stack"},
		{"indirect recursion", mod{
			funcs:  []fn{{name: "f", body: code(num(0), callInd, 0, 0)}},
			tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 0)},
		}, "out of stack"},
		{"recursion by cold calls", mod{funcs: []fn{{name: "f", body: code(call, 1, unreachable)}, {body: code(call, 0, unreachable)}}}, "out of stack"},
		{"recursion by a cold call of a function in no cycle", mod{funcs: []fn{
			{name: "f", body: code(num(1), ifThen, void, call, 1, unreachable, end)}, {body: code(call, 2)}, {body: code(call, 0)},
		}}, "out of stack"},
		{"cold calls in a loop", mod{funcs: []fn{
			{name: "f", body: forever(num(0), ifThen, void, call, 1, unreachable, end)}, {body: code(call, 0)},
		}}, "out of fuel"},
		{"cold call within a loop", mod{funcs: []fn{
			{name: "f", body: forever(call, 1)}, {body: code(num(0), ifThen, void, call, 0, unreachable, end)},
		}}, "out of fuel"},
		{"recursion by types that are equal", mod{
			funcs:  []fn{{name: "f", body: code(num(0), callInd, 2, 0)}, {body: code(call, 0)}},
			tables: [][]byte{{0x70, 0, 1}}, elems: [][]byte{code(0, num(0), end, 1, 1)},
		}, "out of stack"},
		{"recursion in a loop", one(forever(call, 0)), "out of stack"},
		{"memory.fill in a loop", one(forever(num(0), num(0), num(0xffff), 0xfc, 11, 0)), "out of fuel"},
		{"memory.fill of all memory", grown, "out of fuel"},
		{"memory.fill of more than there is", one(num(0), num(0), num(-1), 0xfc, 11, 0), "out of fuel"},
		{"memory.copy in a loop", one(forever(num(0), num(0), num(0xffff), 0xfc, 10, 0, 0)), "out of fuel"},
		{"memory.init in a loop", passive, "out of fuel"},
		{"memory.grow in a loop", one(forever(num(1), 0x40, 0, drop)), "out of fuel"},
		{"memory.grow of nothing in a loop", one(forever(num(0), 0x40, 0, drop)), "out of fuel"},
		{"memory.grow of too much", one(num(-1), 0x40, 0, drop), "out of fuel"},
		{"table.grow in a loop", one(forever(0xd0, 0x70, num(1), 0xfc, 15, 0, drop)), "out of fuel"},
		{"table.fill in a loop", one(forever(num(0), 0xd0, 0x70, num(9), 0xfc, 17, 0)), "out of fuel"},
		{"table.copy in a loop", one(forever(num(0), num(0), num(9), 0xfc, 14, 0, 0)), "out of fuel"},
		{"table.init in a loop", elems, "out of fuel"},
		{"a trap of its own", one(unreachable), "trapped"},
		{"nothing", one(), "returned"},
	}
	for _, tt := range tests {
		for _, engine := range engines() {
			t.Run(tt.name+"/"+engine.name, func(t *testing.T) {
				want := tt.want
				if want == "out of stack" && engine.name == "interpreter" {
					want = "trapped" // the interpreter's own limit on frames is lower
				}
				g, err := instantiate(t, tt.module.assemble(), meter.Config{Slice: 200_000}, engine.config)
				if err != nil {
					t.Fatal(err)
				}
				fuel := int64(10_000_000)
				if engine.name == "interpreter" {
					fuel = 1_000_000 // the interpreter is slow
				}
				got, used := g.call(t, fuel, "f")
				if got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if left := used - fuel; left > 1<<33*8192 {
					t.Errorf("%d below zero", left)
				}
				if rest := g.rest.Get(); got == "out of fuel" && !once(tt.name) && rest != 0 {
					t.Errorf("it did not pause with its last slice of fuel, but was to do so with %d behind it", rest)
				}
				if got == "out of fuel" { // every further call traps as well
					if _, err := g.module.ExportedFunction("f").Call(t.Context()); err == nil {
						t.Error("it ran without fuel")
					}
				}
			})
		}
	}
}

type engine struct {
	name   string
	config wazero.RuntimeConfig
}

func engines() []engine {
	return []engine{{"compiler", wazero.NewRuntimeConfigCompiler()}, {"interpreter", wazero.NewRuntimeConfigInterpreter()}}
}

// TestStart shows that Config.Init bounds a start function.
func TestStart(t *testing.T) {
	m := mod{funcs: []fn{{body: forever()}}, start: 1}.assemble()
	if _, err := instantiate(t, m, meter.Config{Init: 1_000_000}, wazero.NewRuntimeConfig()); err == nil {
		t.Error("an endless start function came to an end")
	}
	m = mod{funcs: []fn{{name: "f", locals: []byte{1, 1, i32}, body: code(num(100), set, 0, loop, void, get, 0, num(1), sub, tee, 0, brIf, 0, end)}}, start: 1}.assemble()
	g, err := instantiate(t, m, meter.Config{Init: 1_000_000}, wazero.NewRuntimeConfig())
	if err != nil {
		t.Fatal(err)
	}
	left := g.left()
	if _, used := g.call(t, 1_000_000, "f"); left != 1_000_000-used {
		t.Errorf("%d left after the start, and the same work takes %d", left, used)
	}
	if _, err := instantiate(t, m, meter.Config{Init: 100}, wazero.NewRuntimeConfig()); err == nil {
		t.Error("started with too little fuel")
	}
}

// TestExact compares the charge with the instructions that are executed, counted by hand.
func TestExact(t *testing.T) {
	for _, n := range []uint64{1, 2, 100, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			g, err := instantiate(t, mod{funcs: []fn{fib(), count(), scan()}, memory: []byte{0, 1}}.assemble(), meter.Config{Slice: int64(n) % 1000}, wazero.NewRuntimeConfig())
			if err != nil {
				t.Fatal(err)
			}
			if end, used := g.call(t, math.MaxInt64/2, "count", n); end != "returned" || used != int64(7*n) {
				t.Errorf("%s with %d, want 7 for each of %d rounds", end, used, n)
			}
			// One unit less than needed is too little.
			if end, _ := g.call(t, int64(7*n), "count", n); end != "returned" {
				t.Errorf("%s with just enough fuel", end)
			}
			if end, _ := g.call(t, int64(7*n-1), "count", n); end != "out of fuel" {
				t.Errorf("%s with too little fuel", end)
			}
		})
	}
}

// TestNotTaken shows that long code is charged only when it is executed. Short code may join an
// earlier charge and at most double it.
func TestNotTaken(t *testing.T) {
	long := code()
	for range 100 {
		long = append(long, code(num(1), drop)...)
	}
	body := code(get, 0, ifThen, void, long, end, block, void, get, 0, num(1), sub, brIf, 0, long, end)
	g, err := instantiate(t, mod{funcs: []fn{{name: "f", params: []byte{i32}, body: body}}}.assemble(), meter.Config{}, wazero.NewRuntimeConfig())
	if err != nil {
		t.Fatal(err)
	}
	for arg, want := range []int64{6, 406} {
		if end, used := g.call(t, 1000, "f", uint64(arg)); end != "returned" || used != want {
			t.Errorf("%d: %s with %d, want %d", arg, end, used, want)
		}
	}
	body = code(block, void, block, void, block, void, num(0), brIf, 1, get, 0, brIf, 2, end, end, long, end)
	g, err = instantiate(t, mod{funcs: []fn{{name: "f", params: []byte{i32}, body: body}}}.assemble(), meter.Config{}, wazero.NewRuntimeConfig())
	if err != nil {
		t.Fatal(err)
	}
	for arg, want := range []int64{204, 4} {
		if end, used := g.call(t, 1000, "f", uint64(arg)); end != "returned" || used != want {
			t.Errorf("blocks that are left, %d: %s with %d, want %d", arg, end, used, want)
		}
	}
}

// TestExactShapes counts the fuel of two loops with rules of their own: a dispatch loop of Go's
// compiler, and a loop that calls a function with a loop without calls.
func TestExactShapes(t *testing.T) {
	dispatch := fn{
		name: "dispatch", params: []byte{i32}, locals: []byte{1, 1, i32},
		body: code(loop, void, block, void, block, void, get, 1, brTable, 1, 0, 0, end, // 6
			get, 0, num(1), sub, tee, 0, brIf, 1, end, end), // 5
	}
	calls := fn{
		name: "calls", params: []byte{i32},
		// 8 for the loop, 6 for the call, 70 in the called function.
		body: code(loop, void, num(10), call, 0, get, 0, num(1), sub, tee, 0, brIf, 0, end),
	}
	g, err := instantiate(t, mod{funcs: []fn{count(), dispatch, calls}}.assemble(), meter.Config{Slice: 7}, wazero.NewRuntimeConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"dispatch": 11, "calls": 84} {
		if end, used := g.call(t, 1_000_000, name, 1000); end != "returned" || used != 1000*want {
			t.Errorf("%s: %s with %d, want %d for each of 1000 rounds", name, end, used, want)
		}
	}
}
