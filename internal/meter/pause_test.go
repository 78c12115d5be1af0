package meter_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// pauser is the host's function for pauses in a runtime.
type pauser struct {
	slice  int64
	ref    uint64
	paused func() // called at each pause, if not nil
}

// counters are the counters of an instance.
type counters struct{ fuel, rest, stack api.MutableGlobal }

func countersOf(in api.Module, m *meter.Module) counters {
	global := func(name string) api.MutableGlobal { return in.ExportedGlobal(name).(api.MutableGlobal) }
	return counters{fuel: global(m.Fuel), rest: global(m.Rest), stack: global(m.Stack)}
}

// fill gives a guest fuel before a call, as the host does.
func (c counters) fill(fuel, slice int64) {
	first := min(fuel, slice)
	c.fuel.Set(uint64(first))
	c.rest.Set(uint64(fuel - first))
	c.stack.Set(0)
}

// left returns the remaining fuel.
func (c counters) left() int64 { return int64(c.fuel.Get()) + int64(c.rest.Get()) }

// newPauser registers the function in a runtime. It returns the slice, or the rest if that is less.
func newPauser(tb testing.TB, r wazero.Runtime, slice int64) *pauser {
	tb.Helper()
	p := &pauser{slice: slice}
	host := api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
		if p.paused != nil {
			p.paused()
		}
		stack[0] = uint64(min(int64(stack[0]), p.slice))
	})
	i64 := []api.ValueType{api.ValueTypeI64}
	_, err := r.NewHostModuleBuilder(meter.PauseModule).NewFunctionBuilder().WithGoModuleFunction(host, i64, i64).Export(meter.PauseFunction).Instantiate(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	helper, err := r.InstantiateWithConfig(tb.Context(), meter.PauseHelper(), wazero.NewModuleConfig().WithName(""))
	if err != nil {
		tb.Fatal(err)
	}
	ref, err := helper.ExportedFunction(meter.PauseRef).Call(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	p.ref = ref[0]
	return p
}

// start prepares an instance as the host does.
func (p *pauser) start(ctx context.Context, in api.Module, m *meter.Module) error {
	if m.Arm != "" {
		if _, err := in.ExportedFunction(m.Arm).Call(ctx, p.ref); err != nil {
			return err
		}
	}
	if m.Start == "" {
		return nil
	}
	_, err := in.ExportedFunction(m.Start).Call(ctx)
	return err
}

// TestReferences executes ref.func many times and shows that it allocates nothing.
func TestReferences(t *testing.T) {
	// Guarantee: guest-memory
	const n = 200_000
	m := mod{
		funcs: []fn{{name: "f", params: []byte{i32}, body: code(loop, void, 0xd2, 0, drop, 0xd2, 1, drop, get, 0, num(1), sub, tee, 0, brIf, 0, end)}, {name: "g"}},
	}
	g, err := instantiate(t, m.assemble(), meter.Config{Slice: 40_000}, wazero.NewRuntimeConfigCompiler())
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	end, _ := g.call(t, 1<<40, "f", n)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; end != "returned" || allocated > n {
		t.Errorf("%s, and %d bytes were allocated for %d executions", end, allocated, 2*n)
	}
}
