package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/pkg/lines"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/meter"
)

// settings is what a handler is made of.
type settings struct {
	module []byte
	config string // JSON, "null" if there is none
	limits Limits
	rights *rights
	env    plugins.Env
}

// engine is one module, compiled once, and makes instances of it. It has a runtime of its own, so that closing it frees everything.
//
// The runtime does not watch the context during a call (WithCloseOnContextDone): that makes guests up to 27 times slower.
type engine struct {
	settings
	runtime  wazero.Runtime
	metered  *meter.Module
	compiled wazero.CompiledModule
	cache    wazero.CompilationCache // nil: none
	abi      abi
	log      *lines.Log
	memory   adder // bytes of all instances
	fuel     adder // burnt by all instances
	tight    sync.Once
}

// adder is the part of a metric that is used here.
type adder interface{ Add(float64) }

func readModule(path string, longest int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	defer f.Close()
	module, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", path, err)
	}
	if int64(len(module)) > longest {
		return nil, fmt.Errorf("module %s: larger than %d bytes: build it without debug information (Go: -ldflags '-s -w'), or raise limits.module", path, longest)
	}
	return module, nil
}

// newEngine compiles the module and links what it imports.
func newEngine(ctx context.Context, s settings) (*engine, error) {
	if err := checkHeader(s.module); err != nil {
		return nil, err
	}
	e := &engine{
		settings: s,
		abi:      v1{},
		log:      lines.New(s.env.Log, s.limits.Log, int(s.limits.LogLine)),
		memory:   s.env.Metrics.GuestMemory.WithLabelValues(s.env.Name),
		fuel:     s.env.Metrics.GuestFuel.WithLabelValues(s.env.Name),
	}
	if err := e.compile(ctx); err != nil {
		return nil, err
	}
	if err := e.link(ctx); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

// link gives the runtime what guests may import, and finds what a module asks for beyond that.
func (e *engine) link(ctx context.Context) error {
	if err := provideWASI(ctx, e); err != nil {
		return err
	}
	if err := e.abi.provide(ctx, e); err != nil {
		return fmt.Errorf("host functions: %w", err)
	}
	if err := e.checkImports(); err != nil {
		return err
	}
	return e.abi.check(e.compiled)
}

// checkHeader tells the mistakes apart that are made most.
func checkHeader(module []byte) error {
	switch {
	case !bytes.HasPrefix(module, []byte("\x00asm")):
		return errors.New("not a WebAssembly module: it does not start with \\0asm")
	case bytes.HasPrefix(module, []byte("\x00asm\x0d\x00\x01\x00")):
		return errors.New("a WebAssembly component (wasip2): only core modules (wasip1) are supported")
	}
	return nil
}

// What is said of a module's imports is bounded: their names are the module's choice.
const (
	longestName = 100 // bytes
	mostMissing = 20
)

// checkImports finds what the module imports and nobody gives, all at once.
func (e *engine) checkImports() error {
	var missing []string
	for _, f := range e.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		shown := lines.Clean(module, longestName) + "." + lines.Clean(name, longestName)
		var have api.FunctionDefinition
		if host := e.runtime.Module(module); host != nil {
			have = host.ExportedFunctionDefinitions()[name]
		}
		switch {
		case have == nil:
			missing = append(missing, shown)
		case signature(have) != signature(f):
			missing = append(missing, fmt.Sprintf("%s as %s (it is %s)", shown, signature(f), signature(have)))
		}
	}
	for _, m := range e.compiled.ImportedMemories() {
		module, name, _ := m.Import()
		missing = append(missing, lines.Clean(module, longestName)+"."+lines.Clean(name, longestName)+" (a memory)")
	}
	for _, name := range e.metered.Tables {
		missing = append(missing, lines.Clean(name, 2*longestName+1)+" (a table)")
	}
	for _, name := range e.metered.Globals {
		missing = append(missing, lines.Clean(name, 2*longestName+1)+" (a global)")
	}
	if more := len(missing) - mostMissing; more > 0 {
		missing = append(missing[:mostMissing], fmt.Sprintf("and %d more", more))
	}
	problems, unknown := missingGrants(missing)
	if unknown != nil {
		problems = append(problems, "it imports what the router does not give: "+strings.Join(unknown, ", "))
	}
	if problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

func signature(f api.FunctionDefinition) string {
	return "(" + valueTypes(f.ParamTypes()) + ") → (" + valueTypes(f.ResultTypes()) + ")"
}

func valueTypes(types []api.ValueType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = api.ValueTypeName(t)
	}
	return strings.Join(names, ", ")
}

// errExit is wrapped by the error of a guest that ended itself.
var errExit = errors.New("the guest exited")

// longestTrace bounds what of a guest's stack trace is logged, in bytes.
const longestTrace = 4 << 10

// explain makes an error of a call fit to be read: what happened, without the guest's stack trace, which goes to the debug log.
func (in *instance) explain(err error) error {
	limits := &in.engine.limits
	switch why := in.scope.tank.why(); {
	case why == errFuel && in.session == nil: //nolint:errorlint // never wrapped
		return fmt.Errorf("%w: its start takes more than %d instructions: raise limits.initFuel", errFuel, limits.InitFuel)
	case why == errFuel: //nolint:errorlint // never wrapped
		return fmt.Errorf("%w: one delta takes more than %d instructions: raise limits.fuel, or do less", errFuel, limits.Fuel)
	case why != nil:
		return why
	}
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w with code %d", errExit, exit.ExitCode())
	}
	reason, trace, _ := strings.Cut(err.Error(), "\n")
	if trace != "" {
		in.engine.env.Log.Debug("guest trapped", "reason", reason, "trace", trace[:min(len(trace), longestTrace)])
	}
	return fmt.Errorf("the guest trapped: %s", strings.TrimPrefix(reason, "wasm error: "))
}

// ended counts an instance that is not used again.
func (e *engine) ended(in *instance, err error) {
	reason := "trap"
	switch {
	case err == nil && in.calls >= int(e.limits.Calls):
		reason = "calls"
	case err == nil:
		reason = "memory"
	case errors.Is(err, errFuel):
		reason = "fuel"
	case errors.Is(err, errStack):
		reason = "stack"
	case errors.Is(err, errExit):
		reason = "exit"
	case errors.Is(err, errMalformed):
		reason = "answer"
	}
	e.env.Metrics.GuestsEnded.WithLabelValues(e.env.Name, reason).Inc()
}

// interpreted reports whether wazero uses its interpreter, some twenty times slower than compiled code. It does so silently.
func (in *instance) interpreted() bool {
	for name := range in.engine.compiled.ExportedFunctions() {
		return strings.Contains(fmt.Sprintf("%T", in.module.ExportedFunction(name)), "interpreter")
	}
	return false
}

// close frees the module and all its instances.
func (e *engine) close(ctx context.Context) error {
	e.log.Report()
	e.rights.close()
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}
