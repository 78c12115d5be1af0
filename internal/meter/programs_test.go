package meter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// program is a program of a third party.
type program struct {
	name   string
	module func(testing.TB) []byte // skips the program if something is missing
	run    func(*testing.B, *guest) error
	config wazero.ModuleConfig // of a command
}

// guest is one of the two forms of a program.
type guest struct {
	program  program
	ctx      context.Context
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	pause    *pauser
	metered  *meter.Module // or nil
	instance api.Module
	script   []uint64
}

// programs returns the programs that others wrote. Their sources, or the modules themselves, are
// part of Go, of the module cache, of Debian's packages, or were fetched by make.
func programs() []program {
	return []program{
		standard("encoding/json", "BenchmarkCodeUnmarshal$", "1x"),
		standard("encoding/json", "BenchmarkCodeMarshal$", "1x"),
		standard("regexp", "BenchmarkMatchHard_1K$|BenchmarkOnePassLongNotPrefix|BenchmarkReplaceAll", "10000x"),
		standard("go/parser", "BenchmarkParse$", "10x"),
		standard("compress/flate", "BenchmarkEncode/Digits/Default/1e5", "20x"),
		standard("sort", "BenchmarkSort.*1K$", "200x"),
		shootout("binary-tree", "13"),
		shootout("fannkuch", "9"),
		shootout("fasta", "1000000"),
		shootout("nbody", "500000"),
		shootout("spectral-norm", "500"),
		shootout("mandelbrot", "600"),
		c("zlib enough", func(testing.TB) string { return "/usr/share/doc/zlib1g-dev/examples/enough.c" }, "150"),
		quickJS(), cPython(),
	}
}

// standard returns benchmarks of a package of Go's standard library.
func standard(pkg, benchmark, times string) program {
	src := goSources()
	module := func(tb testing.TB) []byte {
		tb.Helper()
		file := filepath.Join(tb.TempDir(), "test.wasm")
		return output(tb, file, filepath.Join(src, pkg), []string{"GOOS=wasip1", "GOARCH=wasm", "GOFLAGS="}, "go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", file, ".")
	}
	config := wazero.NewModuleConfig().WithFSConfig(wazero.NewFSConfig().WithReadOnlyDirMount(src, "/src")).WithEnv("PWD", "/src/"+pkg)
	return program{name: "go " + pkg + " " + strings.Trim(benchmark, "$"), module: module, run: runCommand, config: config.WithArgs("test", "-test.run=^$", "-test.bench="+benchmark, "-test.benchtime="+times)}
}

// goSources returns the folder of the sources of Go.
var goSources = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "env", "GOROOT").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "src")
})

// shootout returns a program of the Computer Language Benchmarks Game in C.
func shootout(name string, args ...string) program {
	return c(name, func(tb testing.TB) string {
		tb.Helper()
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/exp").Output()
		if err != nil || len(out) < 2 {
			tb.Skip("golang.org/x/exp is not in the module cache")
		}
		return filepath.Join(strings.TrimSpace(string(out)), "shootout", name+".c")
	}, args...)
}

// c returns a command in C.
func c(name string, source func(testing.TB) string, args ...string) program {
	module := func(tb testing.TB) []byte {
		tb.Helper()
		file, from := filepath.Join(tb.TempDir(), "c.wasm"), source(tb)
		if _, err := os.Stat(from); err != nil {
			tb.Skip(err)
		}
		return output(tb, file, "", nil, "clang", "--target=wasm32-wasi", "-O2", "-w", from, "-lm", "-o", file)
	}
	return program{name: "c " + name, module: module, run: runCommand, config: wazero.NewModuleConfig().WithArgs(append([]string{name}, args...)...)}
}

// output runs a compiler and returns the file that it writes.
func output(tb testing.TB, file, dir string, env []string, name string, args ...string) []byte {
	tb.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Skipf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// read returns a module that make fetched.
func read(file string) func(testing.TB) []byte {
	return func(tb testing.TB) []byte {
		tb.Helper()
		b, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			tb.Skip(err)
		}
		return b
	}
}

func cPython() program {
	const script = `
import json, re
data = {str(i): [i, str(i), {"a": i / 7, "b": None}] for i in range(300)}
class Encoder(json.JSONEncoder):
    def default(self, o): return str(o)
for i in range(5):
    text = "".join(Encoder(indent=1).iterencode(data))
    again = json.loads(text)
    assert again == data
    assert len(re.findall(r'"([a-z]+)": (\d+\.\d+|null)', text)) > 100
`
	config := wazero.NewModuleConfig().WithArgs("python", "-c", script)
	return program{name: "cpython json", module: read("examples/plugins/command-python/python.wasm"), run: runCommand, config: config}
}

func quickJS() program {
	const script = `
(() => {
	const data = Object.fromEntries(Array.from({length: 300}, (_, i) => ["k" + i, [i, String(i), {a: i / 7, b: null}]]));
	let n = 0;
	for (let i = 0; i < 10; i++) {
		const again = JSON.parse(JSON.stringify(data));
		for (const [k, v] of Object.entries(again)) n += k.length + v[0] + v[1].split("").map(x => +x).reduce((a, b) => a + b, 0);
		n += JSON.stringify(again).match(/"([a-z])":(\d+\.\d+|null)/g).length;
		n += Object.keys(data).sort((a, b) => a < b ? 1 : -1).length;
	}
	return n;
})()` + "\x00"
	run := func(b *testing.B, g *guest) error {
		if g.instance == nil {
			g.start(b)
			call := func(name string, args ...uint64) uint64 {
				r, err := g.instance.ExportedFunction(name).Call(g.ctx, args...)
				if err != nil {
					b.Fatal(err)
				}
				if len(r) == 0 {
					return 0
				}
				return r[0]
			}
			call("qjs_init")
			at := call("wasm_malloc", uint64(len(script)))
			g.instance.Memory().WriteString(uint32(at), script)
			g.script = []uint64{at, uint64(len(script) - 1), at + uint64(len(script)) - 1, 0}
		}
		r, err := g.instance.ExportedFunction("qjs_eval").Call(g.ctx, g.script...)
		if err != nil {
			return err
		}
		if bad, err := g.instance.ExportedFunction("qjs_is_exception").Call(g.ctx, r[0]); err != nil || bad[0] != 0 {
			return errors.Join(err, errors.New("an exception"))
		}
		return nil
	}
	return program{name: "quickjs json", module: read("pkg/plugins/js/engine/quickjs.wasm"), run: run}
}

// start makes an instance for several turns and gives it fuel.
func (g *guest) start(b *testing.B) {
	b.Helper()
	if g.instance == nil {
		g.instance = g.instantiate(b, wazero.NewModuleConfig())
		if f := g.instance.ExportedFunction("_initialize"); f != nil {
			if _, err := f.Call(g.ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	g.refuel(g.instance)
}

func (g *guest) instantiate(b *testing.B, config wazero.ModuleConfig) api.Module {
	b.Helper()
	in, err := g.runtime.InstantiateModule(g.ctx, g.compiled, config.WithName("").WithStartFunctions())
	if err != nil {
		b.Fatal(err)
	}
	if g.metered != nil {
		if err := g.pause.start(g.ctx, in, g.metered); err != nil {
			b.Fatal(err)
		}
	}
	g.refuel(in)
	return in
}

func (g *guest) refuel(in api.Module) {
	if g.metered != nil {
		countersOf(in, g.metered).fill(math.MaxInt64/2, g.pause.slice)
	}
}

// runCommand runs a command from its start to its end.
func runCommand(b *testing.B, g *guest) error {
	var out bytes.Buffer
	p := g.instantiate(b, g.program.config.WithStdout(io.Discard).WithStderr(&out))
	_, err := p.ExportedFunction("_start").Call(g.ctx)
	if exit := (&sys.ExitError{}); errors.As(err, &exit) && exit.ExitCode() == 0 {
		err = nil
	}
	if err != nil {
		err = errors.Join(err, errors.New(out.String()))
	}
	return errors.Join(err, p.Close(g.ctx))
}

// BenchmarkMeteredPrograms measures the cost of metering in programs of third parties: it runs each
// metered and unmetered in turns, and reports the ratio of the CPU times, and the median and the
// largest ratio of all programs.
func BenchmarkMeteredPrograms(b *testing.B) {
	var ratios []float64
	for _, p := range programs() {
		b.Run(p.name, func(b *testing.B) {
			guests := p.guests(b)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var all []float64
			best := [2]time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				var took [2]time.Duration
				for i, g := range guests {
					start := threadTime(b)
					if err := p.run(b, g); err != nil {
						b.Fatal(err)
					}
					took[i] = threadTime(b) - start
					best[i] = min(best[i], took[i])
				}
				all = append(all, took[1].Seconds()/took[0].Seconds())
			}
			slices.Sort(all)
			ratios = append(ratios, best[1].Seconds()/best[0].Seconds())
			b.ReportMetric(all[len(all)/2], "median")
			b.ReportMetric(best[1].Seconds()/best[0].Seconds(), "ratio")
			b.ReportMetric(float64(best[1].Nanoseconds()), "ns/op")
		})
	}
	if slices.Sort(ratios); len(ratios) > 0 {
		b.Logf("%d programs: median %.2f, worst %.2f", len(ratios), ratios[len(ratios)/2], ratios[len(ratios)-1])
	}
}

// guests compiles both forms of a program.
func (p program) guests(b *testing.B) (both [2]*guest) {
	b.Helper()
	code := p.module(b)
	m, err := meter.Rewrite(code, meter.Config{Init: math.MaxInt64 / 2, Slice: 40_000})
	if err != nil {
		b.Fatal(err)
	}
	for i := range both {
		g := &guest{program: p, ctx: b.Context(), runtime: wazero.NewRuntime(b.Context())}
		both[i] = g
		b.Cleanup(func() { _ = g.runtime.Close(context.WithoutCancel(g.ctx)) })
		wasi_snapshot_preview1.MustInstantiate(g.ctx, g.runtime)
		if i == 1 {
			code, g.metered = m.Code, m
			g.pause = newPauser(b, g.runtime, m.Slice)
		}
		if g.compiled, err = g.runtime.CompileModule(g.ctx, code); err != nil {
			b.Fatal(err)
		}
		g.stubs(b)
	}
	return both
}

// stubs provides the imports of a program besides those of WASI: functions that return 0.
func (g *guest) stubs(b *testing.B) {
	b.Helper()
	builders := make(map[string]wazero.HostModuleBuilder)
	for _, f := range g.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if module == wasi_snapshot_preview1.ModuleName {
			continue
		}
		if builders[module] == nil {
			builders[module] = g.runtime.NewHostModuleBuilder(module)
		}
		zero := api.GoFunc(func(_ context.Context, stack []uint64) { clear(stack) })
		builders[module].NewFunctionBuilder().WithGoFunction(zero, f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	for _, builder := range builders {
		if _, err := builder.Instantiate(g.ctx); err != nil {
			b.Fatal(err)
		}
	}
}
