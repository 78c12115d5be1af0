package meter_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/test/built"
)

// goGuest returns the guest in testdata.
func goGuest(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(built.Module(t, "testdata/guest"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bothWays instantiates a module unchanged and rewritten.
func bothWays(t testing.TB, module []byte) (plain, metered api.Module, m *meter.Module) {
	t.Helper()
	m, err := meter.Rewrite(module, meter.Config{Init: math.MaxInt64 / 2, Slice: 40_000})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(ctx)) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	// of wazero's benchmarks
	random := func(ctx context.Context, m api.Module, buf, size uint32) {
		at, err := m.ExportedFunction("allocate_buffer").Call(ctx, 10)
		if err != nil || !m.Memory().WriteUint32Le(buf, uint32(at[0])) || !m.Memory().WriteUint32Le(size, 10) || !m.Memory().WriteString(uint32(at[0]), "0123456789") {
			t.Error("no random string", err)
		}
	}
	if _, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(random).Export("get_random_string").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	pause := newPauser(t, r, m.Slice)
	var both [2]api.Module
	for i, code := range [][]byte{module, m.Code} {
		start := time.Now()
		both[i], err = r.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := pause.start(ctx, both[i], m); err != nil {
				t.Fatal(err)
			}
		}
		if f := both[i].ExportedFunction("_initialize"); f != nil {
			if _, err := f.Call(ctx); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d bytes: compiled and initialised in %v", len(code), time.Since(start))
	}
	return both[0], both[1], m
}

// BenchmarkMetered measures the cost of metering: it runs the same work metered (ns/op) and
// unmetered in turns, and reports the ratio.
func BenchmarkMetered(b *testing.B) {
	works := mod{funcs: []fn{fib(), count(), scan()}, memory: []byte{0, 1}}.assemble()
	goWorks := goGuest(b)
	tests := []struct {
		name   string
		module []byte
		export string
		arg    uint64
	}{
		{"json map", goWorks, "parse", 20},
		{"json struct", goWorks, "typed", 20},
		{"sort", goWorks, "sorted", 2000},
		{"fib", works, "fib", 22},
		{"tight loop", works, "count", 1_000_000},
		{"byte scan", works, "scan", 1_000_000},
	}
	// Programs of wazero's benchmarks, built by TinyGo.
	others, err := os.ReadFile(filepath.Join(filepath.Dir(spectest(b)), "bench", "testdata", "case.wasm"))
	if err != nil {
		b.Fatal(err)
	}
	for name, arg := range map[string]uint64{"fibonacci": 20, "string_manipulation": 50, "reverse_array": 500, "random_mat_mul": 20, "base64": 100} {
		tests = append(tests, struct {
			name   string
			module []byte
			export string
			arg    uint64
		}{"tinygo " + name, others, name, arg})
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			plain, metered, m := bothWays(b, tt.module)
			c := countersOf(metered, m)
			f, g := plain.ExportedFunction(tt.export), metered.ExportedFunction(tt.export)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			// The best of several turns: other processes of the machine disturb single turns.
			best := [2]time.Duration{time.Hour, time.Hour}
			used := int64(0)
			for b.Loop() {
				for i, f := range []api.Function{f, g} {
					c.fill(1<<60, m.Slice)
					start := threadTime(b)
					if _, err := f.Call(b.Context(), tt.arg); err != nil {
						b.Fatal(err)
					}
					best[i] = min(best[i], threadTime(b)-start)
				}
				used += 1<<60 - c.left()
			}
			b.ReportMetric(best[1].Seconds()/best[0].Seconds(), "ratio")
			b.ReportMetric(1e3*best[1].Seconds()*1e7/(float64(used)/float64(b.N)), "ms/10Mfuel")
			b.ReportMetric(float64(best[1].Nanoseconds()), "ns/op")
			b.ReportMetric(float64(used)/float64(b.N), "fuel")
		})
	}
}

// threadTime returns the CPU time of the thread.
func threadTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkRewrite rewrites a module of Go's compiler.
func BenchmarkRewrite(b *testing.B) {
	module := goGuest(b)
	b.SetBytes(int64(len(module)))
	b.ReportAllocs()
	for b.Loop() {
		m, err := meter.Rewrite(module, meter.Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(m.Code))/float64(len(module)), "size")
	}
}

// BenchmarkCompileBombs compiles modules just below the limits of Config.
func BenchmarkCompileBombs(b *testing.B) {
	for name, bomb := range bombs() {
		b.Run(name, func(b *testing.B) {
			m, err := meter.Rewrite(bomb.passes.assemble(), meter.Config{Slice: 40_000})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r := wazero.NewRuntime(b.Context())
				if _, err := r.CompileModule(b.Context(), m.Code); err != nil {
					b.Fatal(err)
				}
				if err := r.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
