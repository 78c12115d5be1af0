package extism

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// protocol is how the host speaks with modules for Extism. It implements [engine.Protocol] and
// [engine.Starter].
type protocol struct {
	function string // that takes deltas
	config   map[string]string
	limits   *abi.Limits
	blocks   uint64 // maximum bytes of the shared memory of an instance
}

var _ interface {
	engine.Protocol
	engine.Starter
} = protocol{}

// Stack implements [engine.Protocol].
func (protocol) Stack() int32 { return 0 }

// CheckImports implements [engine.Protocol].
func (protocol) CheckImports(_ *host.Host, imports []meter.Import) error {
	if slices.ContainsFunc(imports, func(im meter.Import) bool { return im.Module == "rtr_v1" }) {
		return errOtherKind
	}
	return host.CheckImports(imports, signatures())
}

// Provide implements [engine.Protocol].
func (protocol) Provide(ctx context.Context, _ *host.Host, runtime wazero.Runtime) error {
	return provide(ctx, runtime)
}

var errOtherKind = errors.New("it is a module for the ABI rtr_v1: write `wasm:` in place of `extism:`")

// Bounds of an error about exports, because the module chooses their names.
const (
	longestName = 100 // bytes
	mostNames   = 20
)

// Check implements [engine.Protocol].
func (p protocol) Check(module wazero.CompiledModule) error {
	exports := module.ExportedFunctions()
	switch f := exports[p.function]; {
	case p.function == "_start" || p.function == "_initialize":
		return fmt.Errorf("function: %s starts a program, which then ends: export a function, and name that (Go: //go:wasmexport and -buildmode=c-shared)", p.function)
	case exports["rtr_abi_version"] != nil:
		return errOtherKind
	case f == nil:
		return fmt.Errorf("it does not export the function %s: name one of its functions with `function`: %s", printable.Clean(p.function, longestName), names(exports))
	case !callable(f):
		return fmt.Errorf("the function %s is %s: a function for deltas takes nothing and returns nothing or an i32", printable.Clean(p.function, longestName), host.Signature(f))
	}
	return nil
}

// callable reports whether a function can take deltas.
func callable(f api.FunctionDefinition) bool {
	results := f.ResultTypes()
	return len(f.ParamTypes()) == 0 && (len(results) == 0 || len(results) == 1 && results[0] == api.ValueTypeI32)
}

// names returns the names of the functions that can take deltas.
func names(exports map[string]api.FunctionDefinition) string {
	var all []string
	for name, f := range exports {
		if callable(f) && !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "asyncify_") {
			all = append(all, printable.Clean(name, longestName))
		}
	}
	slices.Sort(all)
	if more := len(all) - mostNames; more > 0 {
		all = append(all[:mostNames], fmt.Sprintf("and %d more", more))
	}
	if all == nil {
		return "it exports none that takes nothing"
	}
	return strings.Join(all, ", ")
}

// Begin implements [engine.Starter]: the guest calls host functions before it is attached.
func (p protocol) Begin(ctx context.Context) context.Context {
	s := &session{config: p.config, limits: p.limits, memory: memory{most: p.blocks}}
	s.reset()
	return s.within(ctx)
}

// Attach implements [engine.Protocol]. It starts the runtime of the language, as the hosts of
// Extism do; the engine has called _initialize.
func (p protocol) Attach(ctx context.Context, in *engine.Instance) (engine.Session, error) {
	s := sessionOf(ctx)
	if s == nil {
		return nil, errNoSession
	}
	s.in = in
	module := in.Module()
	s.function = module.ExportedFunction(p.function)
	start, params := "", []uint64(nil)
	if f := module.ExportedFunction("hs_init"); f != nil && host.Signature(f.Definition()) == "(i32, i32) → ()" { // Haskell
		start, params = "hs_init", []uint64{0, 0}
	} else if f := module.ExportedFunction("__wasm_call_ctors"); f != nil && host.Signature(f.Definition()) == "() → ()" && module.ExportedFunction("_initialize") == nil {
		start = "__wasm_call_ctors"
	}
	if start != "" {
		if _, err := module.ExportedFunction(start).Call(ctx, params...); err != nil {
			return nil, fmt.Errorf("%s: %w", start, s.explain(err))
		}
	}
	return s, nil
}

// Hint implements [engine.Protocol].
func (protocol) Hint(_ wazero.CompiledModule, err error) error { return err }
