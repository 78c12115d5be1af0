package meter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/test/effort"
)

// script is a test script of the WebAssembly core specification, converted by wast2json.
type script struct {
	Commands []command `json:"commands"`
}

type command struct {
	Type       string `json:"type"`
	Line       int    `json:"line"`
	Name       string `json:"name"`
	As         string `json:"as"`
	Filename   string `json:"filename"`
	ModuleType string `json:"module_type"`
	Action     struct {
		Type   string  `json:"type"`
		Field  string  `json:"field"`
		Module string  `json:"module"`
		Args   []value `json:"args"`
	} `json:"action"`
}

type value struct {
	Type  string `json:"type"`
	Lane  string `json:"lane_type"`
	Value any    `json:"value"`
}

// spectest returns the folder of the specification tests in wazero's module.
func spectest(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("go list -m github.com/tetratelabs/wazero: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	if _, err := os.Stat(filepath.Join(dir, "testdata", "spectest.wasm")); err != nil {
		t.Fatalf("the specification's tests are not in the module cache (go mod download github.com/tetratelabs/wazero): %v", err)
	}
	return dir
}

// TestSpec runs the tests of the specification with each module unchanged and rewritten, and
// expects the same results. With few rounds it does so in one configuration: that in which guests
// pause most often.
func TestSpec(t *testing.T) {
	dir := spectest(t)
	engines := []struct {
		name    string
		version string
		config  wazero.RuntimeConfig
		slice   int64
	}{
		{"compiler", "v2", wazero.NewRuntimeConfigCompiler(), 100},
		{"compiler", "v2", wazero.NewRuntimeConfigCompiler(), 40_000},
		{"compiler", "v1", wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2), 40_000},
		{"interpreter", "v2", wazero.NewRuntimeConfigInterpreter(), 1000},
	}
	for _, e := range engines[:effort.Rounds(1, len(engines), len(engines))] {
		t.Run(fmt.Sprint(e.name, e.version, " ", e.slice), func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(dir, e.version, "testdata", "*.json"))
			if err != nil || len(files) < 50 {
				t.Fatalf("%d files: %v", len(files), err)
			}
			var checks atomic.Int64
			t.Run("scripts", func(t *testing.T) { // ends when all of them have
				for _, file := range files {
					if e.version == "v1" && filepath.Base(file) == "linking.json" {
						continue // version 2.0 changed the effects of a module that cannot be linked
					}
					t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
						t.Parallel()
						checks.Add(runScript(t, file, filepath.Join(dir, "testdata", "spectest.wasm"), e.config, e.slice))
					})
				}
			})
			t.Logf("%d assertions", checks.Load())
			if want := map[string]int64{"v1": 15_000, "v2": 45_000}[e.version]; checks.Load() < want && !t.Failed() {
				t.Errorf("%d assertions, want at least %d", checks.Load(), want)
			}
		})
	}
}

// world is a store of instances. The test has two: one with unchanged modules, one with rewritten
// ones.
type world struct {
	runtime wazero.Runtime
	metered bool
	slice   int64
	named   map[string]api.Module
	last    api.Module
	limit   int32
	stack   map[api.Module]string
	pauser  *pauser
}

func newWorld(t *testing.T, config wazero.RuntimeConfig, metered bool, slice int64) *world {
	w := &world{runtime: wazero.NewRuntimeWithConfig(t.Context(), config), metered: metered, slice: slice, named: map[string]api.Module{}, stack: map[api.Module]string{}}
	t.Cleanup(func() { _ = w.runtime.Close(context.WithoutCancel(t.Context())) })
	if metered {
		w.pauser = newPauser(t, w.runtime, slice)
	}
	return w
}

func (w *world) instantiate(ctx context.Context, code []byte, name string) (api.Module, error) {
	if !w.metered {
		return w.runtime.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithName(name))
	}
	m, err := meter.Rewrite(code, meter.Config{Init: math.MaxInt64 / 2, Slice: w.slice, Chunk: 3, MaxTables: 100, MaxTable: math.MaxUint32})
	if err != nil {
		return nil, err
	}
	in, err := w.runtime.InstantiateWithConfig(ctx, m.Code, wazero.NewModuleConfig().WithName(name))
	if err != nil {
		return nil, err
	}
	w.stack[in], w.limit = m.Stack, m.StackLimit
	return in, w.pauser.start(ctx, in, m)
}

func (w *world) module(name string) api.Module {
	if name == "" {
		return w.last
	}
	return w.named[name]
}

// act executes the action of an assertion and returns the results and the first line of the error.
func (w *world) act(ctx context.Context, c *command) (results []uint64, trap string) {
	m := w.module(c.Action.Module)
	if c.Action.Type == "get" {
		return []uint64{m.ExportedGlobal(c.Action.Field).Get()}, ""
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits()...)
	}
	f := m.ExportedFunction(c.Action.Field)
	stack, _ := m.ExportedGlobal(w.stack[m]).(api.MutableGlobal)
	if stack != nil {
		stack.Set(0)
	}
	results, err := f.Call(ctx, args...)
	for i, t := range f.Definition().ResultTypes() {
		if err == nil && len(f.Definition().ResultTypes()) == len(results) && t == 0x70 && results[i] != 0 {
			results[i] = 1 // a function is returned as its address
		}
	}
	if err != nil {
		trap, _, _ = strings.Cut(err.Error(), "\n")
		trap = strings.TrimPrefix(trap, "wasm error: ")
		if stack != nil && int32(stack.Get()) > w.limit {
			trap = "stack overflow"
		}
	}
	return results, trap
}

// bits returns a value in the representation of wazero.
func (v value) bits() []uint64 {
	if v.Type != "v128" {
		s, _ := v.Value.(string)
		return []uint64{parseBits(s, v.Type)}
	}
	var out [2]uint64
	lanes := v.Value.([]any)
	width := 128 / len(lanes)
	for i, lane := range lanes {
		out[i*width/64] |= parseBits(lane.(string), "i64") << (i * width % 64)
	}
	return out[:]
}

func parseBits(s, typ string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		signed, _ := strconv.ParseInt(s, 10, 64) // "null" is 0
		n = uint64(signed)
		if strings.HasSuffix(typ, "32") {
			n = uint64(uint32(n))
		}
	}
	if typ == "externref" && s != "null" {
		n++ // 0 is null
	}
	return n
}

func runScript(t *testing.T, file, host string, config wazero.RuntimeConfig, slice int64) (checks int64) {
	ctx := t.Context()
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var s script
	if err := json.Unmarshal(read(file), &s); err != nil {
		t.Fatal(err)
	}
	worlds := []*world{newWorld(t, config, false, 0), newWorld(t, config, true, slice)}
	for _, w := range worlds {
		if _, err := w.instantiate(ctx, read(host), "spectest"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		var code []byte
		if c.Filename != "" && c.ModuleType != "text" {
			code = read(filepath.Join(filepath.Dir(file), c.Filename))
		}
		switch c.Type {
		case "module":
			name := ""
			if next := i + 1; next < len(s.Commands) && s.Commands[next].Type == "register" {
				name = s.Commands[next].As
			}
			for _, w := range worlds {
				m, err := w.instantiate(ctx, code, name)
				if err != nil {
					t.Fatalf("line %d: metered %t: %v", c.Line, w.metered, err)
				}
				w.last = m
				if c.Name != "" {
					w.named[c.Name] = m
				}
			}
		case "register":
		case "assert_malformed", "assert_invalid", "assert_unlinkable", "assert_uninstantiable":
			if code == nil {
				continue
			}
			checks++
			_, plain := worlds[0].instantiate(ctx, code, "")
			_, metered := worlds[1].instantiate(ctx, code, "")
			if (plain == nil) != (metered == nil) {
				t.Errorf("line %d: %s: plain: %v; metered: %v", c.Line, c.Type, plain, metered)
			}
		case "action", "assert_return", "assert_trap", "assert_exhaustion":
			checks++
			want, wantTrap := worlds[0].act(ctx, c)
			got, trap := worlds[1].act(ctx, c)
			if !slices.Equal(want, got) || wantTrap != trap {
				t.Errorf("line %d: %s %s: plain: %x %s; metered: %x %s", c.Line, c.Type, c.Action.Field, want, wantTrap, got, trap)
			}
			if returns := c.Type == "action" || c.Type == "assert_return"; returns != (trap == "") {
				t.Errorf("line %d: %s %s: %s", c.Line, c.Type, c.Action.Field, trap)
			}
		default:
			t.Fatalf("line %d: unknown command %s", c.Line, c.Type)
		}
	}
	return checks
}
