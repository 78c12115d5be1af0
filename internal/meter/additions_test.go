package meter_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// TestPlacesOfCounters shows that neither Fuel nor Stack has a place in the engine's memory that a
// processor confuses with that of the size of the memory, however many imports and globals precede
// them, and that a new version of the engine has the same places.
func TestPlacesOfCounters(t *testing.T) {
	moved := 0
	for imports := range 4 {
		for globals := range 64 {
			m := mod{memory: []byte{0, 1}, imports: slices.Repeat([][]byte{nopImport}, imports), funcs: []fn{{name: "f"}}}
			m.globals = slices.Repeat([][]byte{code(i64, 1, num64(0), end)}, globals)
			g, err := instantiate(t, m.assemble(), meter.Config{}, wazero.NewRuntimeConfigCompiler())
			if err != nil {
				t.Fatal(err)
			}
			size, fuel, stack, rest := places(t, g)
			slow := func(at int64) bool { return (at-size)%1024 == 0 }
			if slow(rest) {
				moved++
			}
			if slow(fuel) || slow(stack) || size != 16 {
				t.Errorf("%d imports, %d globals: size of the memory at %d, Fuel at %d, Stack at %d", imports, globals, size, fuel, stack)
			}
		}
	}
	if moved < 4 {
		t.Errorf("only %d modules have a counter at a slow place: this test shows nothing", moved)
	}
}

// places returns the offsets of the size of the memory and of the counters in the memory of the
// engine, which keeps them in unexported fields.
func places(t *testing.T, g *meteredGuest) (size, fuel, stack, rest int64) {
	t.Helper()
	offsets := reflect.ValueOf(g.module).Elem().FieldByName("Engine").Elem().Elem().FieldByName("parent").Elem().FieldByName("offsets")
	globals := offsets.FieldByName("GlobalsBegin").Int()
	at := func(global api.Global) int64 {
		v := reflect.ValueOf(global)
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if f := v.FieldByName("g"); f.IsValid() {
			v = f.Elem()
		}
		return globals + 16*int64(v.FieldByName("Index").Uint())
	}
	return offsets.FieldByName("LocalMemoryBegin").Int() + 8, at(g.fuel), at(g.stack), at(g.rest)
}
