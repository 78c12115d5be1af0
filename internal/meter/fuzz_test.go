package meter_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/test/effort"
)

// outcome is the observable result of a call.
type outcome struct {
	results                 uint64
	trap                    string
	rounds, counter, shared uint64
	memory                  []byte
}

func (o outcome) equal(p outcome) bool {
	return o.results == p.results && o.trap == p.trap && o.rounds == p.rounds && o.counter == p.counter && o.shared == p.shared &&
		bytes.Equal(o.memory, p.memory)
}

func outcomeOf(ctx context.Context, m api.Module, arg uint64) (o outcome) {
	res, err := m.ExportedFunction("f").Call(ctx, arg, arg*3)
	if err != nil {
		o.trap, _, _ = strings.Cut(err.Error(), "\n")
	} else {
		o.results = res[0]
	}
	o.rounds, o.counter = m.ExportedGlobal("rounds").Get(), m.ExportedGlobal("counter").Get()
	o.shared = m.ExportedGlobal("shared").Get()
	o.memory, _ = m.Memory().Read(0, m.Memory().Size())
	o.memory = bytes.Clone(o.memory)
	return o
}

// erratic returns the fuel of a call whose slices are of all sizes.
func erratic(t *testing.T, in api.Module, m *meter.Module, pause *pauser, arg uint64) int64 {
	t.Helper()
	slice, rng := pause.slice, rand.New(rand.NewPCG(arg, 3))
	pause.paused = func() { pause.slice = rng.Int64N(1 << rng.IntN(20)) }
	defer func() { pause.slice, pause.paused = slice, nil }()
	const much = 1 << 50
	c := countersOf(in, m)
	c.fill(much, m.Slice)
	_ = outcomeOf(t.Context(), in, arg)
	return much - c.left()
}

// compare runs a generated module unchanged and rewritten, with enough fuel and with too little.
func compare(t *testing.T, seed uint64, counting, interpreted bool, slice int64) {
	t.Helper()
	ctx := t.Context()
	config := wazero.NewRuntimeConfigCompiler()
	if interpreted {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	r := wazero.NewRuntimeWithConfig(ctx, config)
	defer func() { _ = r.Close(context.WithoutCancel(ctx)) }()
	plain := generate(seed, counting)
	m, err := meter.Rewrite(plain, meter.Config{Init: 5, Stack: 1 << 30, Slice: slice, Chunk: 5})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	pause := newPauser(t, r, m.Slice)
	var compiled [2]wazero.CompiledModule
	for i, code := range [][]byte{plain, m.Code} {
		if compiled[i], err = r.CompileModule(ctx, code); err != nil {
			t.Fatalf("seed %d: metered %t: %v", seed, i == 1, err)
		}
	}
	start := func(i int) api.Module {
		in, err := r.InstantiateModule(ctx, compiled[i], wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if i == 1 {
			if err := pause.start(ctx, in, m); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		return in
	}
	for arg := range uint64(2) {
		want := outcomeOf(ctx, start(0), arg)
		in := start(1)
		c := countersOf(in, m)
		const much = 1 << 50
		c.fill(much, m.Slice)
		last, most := uint64(0), uint64(0)
		look := func() {
			now := in.ExportedGlobal("counter").Get()
			most, last = max(most, now-last), now
		}
		pause.paused = look
		if got := outcomeOf(ctx, in, arg); !got.equal(want) {
			t.Fatalf("seed %d, %d: plain: %x %s; metered: %x %s", seed, arg, want.results, want.trap, got.results, got.trap)
		}
		if look(); counting && most > uint64(m.Slice)+longestGap {
			t.Errorf("seed %d: %d instructions between two pauses", seed, most)
		}
		pause.paused = nil
		if stack := int32(c.stack.Get()); want.trap == "" && stack != 0 {
			t.Errorf("seed %d: %d bytes of stack in use after the call", seed, stack)
		}
		used := much - c.left()
		if again := erratic(t, start(1), m, pause, arg); want.trap == "" && again != used {
			t.Errorf("seed %d: %d used, and %d with other slices", seed, used, again)
		}
		if used < 0 {
			t.Fatalf("seed %d: %d used", seed, used)
		}
		if want.trap != "" {
			continue // after a trap the end of a loop may be unknown
		}
		if counting && used+slack < int64(want.counter) {
			t.Errorf("seed %d: %d used, and %d instructions", seed, used, want.counter)
		}
		for _, part := range []int64{0, used / 3, used - 1, used} {
			if used == 0 {
				break
			}
			in := start(1)
			c := countersOf(in, m)
			c.fill(part, m.Slice)
			got := outcomeOf(ctx, in, arg)
			if enough := part == used; enough != (c.left() >= 0) || enough && !got.equal(want) {
				t.Errorf("seed %d: %d of %d: %q with %d left", seed, part, used, got.trap, c.left())
			}
			if counting && got.counter > uint64(part)+longestGap {
				t.Errorf("seed %d: %d instructions with fuel for %d", seed, got.counter, part)
			}
		}
	}
}

// longestGap bounds the weight between two pauses in addition to a slice, and what a guest may
// execute without fuel.
const longestGap = 7000

// slack is the weight that may be executed before it is paid: a table of branches at the head of a
// loop, and the code that leads to it.
const slack = 24

// TestGenerated compares random modules with their rewritten forms.
func TestGenerated(t *testing.T) {
	for seed := range uint64(effort.Rounds(60, 200, 2000)) {
		compare(t, seed, seed%2 == 0, seed%3 == 0, []int64{1, 50, 1000, 40_000}[seed%4])
	}
}

// FuzzGenerated is TestGenerated with random seeds.
func FuzzGenerated(f *testing.F) {
	f.Add(uint64(1), true, false, int64(10))
	f.Fuzz(compare)
}

// FuzzRewrite shows that Rewrite never panics, and that its result is valid if and only if the
// input was.
func FuzzRewrite(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(generate(seed, false))
	}
	f.Fuzz(func(t *testing.T, module []byte) {
		m, err := meter.Rewrite(module, meter.Config{MaxLocals: 500, MaxTable: 1000, Slice: int64(len(module) % 2)})
		if err != nil {
			return
		}
		if len(m.Code) > 200*len(module)+1000 {
			t.Errorf("%d bytes became %d", len(module), len(m.Code))
		}
		if _, err := meter.Rewrite(m.Code, meter.Config{MaxLocals: 510}); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
		r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
		defer func() { _ = r.Close(context.WithoutCancel(t.Context())) }()
		_, plain := r.CompileModule(t.Context(), module)
		_, metered := r.CompileModule(t.Context(), m.Code)
		if (plain == nil) != (metered == nil) {
			t.Errorf("plain: %v; metered: %v", plain, metered)
		}
	})
}
