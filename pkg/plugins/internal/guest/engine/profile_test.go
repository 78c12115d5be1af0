package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestProfileAndPauses shows that a profile, and the place of a trap, do not depend on the pauses
// of a guest, after which a function may begin anew.
func TestProfileAndPauses(t *testing.T) {
	// Guarantee: call-replay
	// Two functions: f calls g(10), which calls itself until its parameter is 0, and then traps.
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x08\x02\x60\x00\x00\x60\x01\x7f\x00\x03\x03\x02\x00\x01\x07\x05\x01\x01f\x00\x00" +
		"\x0a\x19\x02\x06\x00\x41\x0a\x10\x01\x0b\x10\x00\x20\x00\x45\x04\x40\x00\x0b\x20\x00\x41\x01\x6b\x10\x01\x0b")
	profile := func(slice int64) (place []string, functions []callrecord.Function) {
		m, err := meter.Rewrite(module, meter.Config{Slice: slice})
		must.Succeed(t, err)
		p := &profiler{functions: m.Functions, by: make(map[api.FunctionDefinition]*callrecord.Function)}
		ctx := experimental.WithFunctionListenerFactory(t.Context(), p)
		r := wazero.NewRuntime(ctx)
		defer r.Close(context.WithoutCancel(ctx))
		pause := api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = min(stack[0], uint64(slice)) })
		i64 := []api.ValueType{api.ValueTypeI64}
		_, err = r.NewHostModuleBuilder(meter.PauseModule).NewFunctionBuilder().WithGoFunction(pause, i64, i64).Export(meter.PauseFunction).Instantiate(ctx)
		must.Succeed(t, err)
		helper, err := r.InstantiateWithConfig(ctx, meter.PauseHelper(), wazero.NewModuleConfig().WithName(""))
		must.Succeed(t, err)
		ref, err := helper.ExportedFunction(meter.PauseRef).Call(ctx)
		must.Succeed(t, err)
		in, err := r.InstantiateWithConfig(ctx, m.Code, wazero.NewModuleConfig().WithName(""))
		must.Succeed(t, err)
		_, err = in.ExportedFunction(m.Arm).Call(ctx, ref...)
		must.Succeed(t, err)
		fuel, rest := in.ExportedGlobal(m.Fuel).(api.MutableGlobal), in.ExportedGlobal(m.Rest).(api.MutableGlobal)
		const much = 1 << 40
		fuel.Set(uint64(slice))
		rest.Set(uint64(much - slice))
		p.used = func() int64 { return much - int64(fuel.Get()) - int64(rest.Get()) }
		if _, err := in.ExportedFunction("f").Call(ctx); err == nil {
			t.Error("no trap")
		}
		return p.place, p.sorted()
	}
	place, functions := profile(1 << 30)
	if len(functions) != 2 || functions[0].Calls != 11 || functions[1].Calls != 1 {
		t.Errorf("got %v", functions)
	}
	for _, slice := range []int64{1, 100} {
		again, same := profile(slice)
		if !slices.Equal(place, again) || !slices.Equal(functions, same) {
			t.Errorf("with slices of %d: %v, at %v; without a pause: %v, at %v", slice, same, again, functions, place)
		}
	}
}
