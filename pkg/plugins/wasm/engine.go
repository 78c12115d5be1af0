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
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// settings is what a handler is made of.
type settings struct {
	module []byte
	config string // JSON, "null" if there is none
	memory uint64 // bytes of an instance
	rights *rights
	env    plugins.Env
}

// engine is one module, compiled once, and makes instances of it. It has a runtime of its own, so that closing it frees everything.
//
// The runtime does not watch the context during a call (WithCloseOnContextDone): that makes guests up to 27 times slower.
type engine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	abi      abi
	settings settings
	log      *guestLog
	memory   gauge // of all instances
	tight    sync.Once
}

// gauge is the part of a metric that is used here.
type gauge interface{ Add(float64) }

func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	defer f.Close()
	module, err := io.ReadAll(io.LimitReader(f, maxModule+1))
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", path, err)
	}
	if len(module) > maxModule {
		return nil, fmt.Errorf("module %s: larger than %d MiB: build it without debug information (Go: -ldflags '-s -w')", path, maxModule>>20)
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
		log:      newGuestLog(s.env.Log),
		memory:   s.env.Metrics.GuestMemory.WithLabelValues(s.env.Name),
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(uint32(s.memory/pageSize)))
	if err := e.link(ctx); err != nil {
		return nil, errors.Join(err, e.runtime.Close(ctx))
	}
	return e, nil
}

func (e *engine) link(ctx context.Context) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, e.runtime); err != nil {
		return fmt.Errorf("wasi: %w", err)
	}
	if err := e.abi.provide(ctx, e); err != nil {
		return fmt.Errorf("host functions: %w", err)
	}
	var err error
	if e.compiled, err = e.runtime.CompileModule(ctx, e.settings.module); err != nil {
		return fmt.Errorf("it cannot be compiled: %w", err)
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

// checkImports finds what the module imports and nobody gives, all at once.
func (e *engine) checkImports() error {
	var missing []string
	for _, f := range e.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		var have api.FunctionDefinition
		if host := e.runtime.Module(module); host != nil {
			have = host.ExportedFunctionDefinitions()[name]
		}
		switch {
		case have == nil:
			missing = append(missing, module+"."+name)
		case signature(have) != signature(f):
			missing = append(missing, fmt.Sprintf("%s.%s as %s (it is %s)", module, name, signature(f), signature(have)))
		}
	}
	for _, m := range e.compiled.ImportedMemories() {
		module, name, _ := m.Import()
		missing = append(missing, module+"."+name+" (a memory)")
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

// instance is one guest with a memory of its own. It is used by one goroutine at a time.
type instance struct {
	session session

	engine *engine
	scope  *scope // what its host functions know
	module api.Module
	output []*lineWriter // stdout and stderr
	calls  int
	size   uint64 // of its memory, as counted in engine.memory
}

// start makes an instance. After an error nothing of it is left.
func (e *engine) start(ctx context.Context) (*instance, error) {
	logCtx := context.WithoutCancel(ctx)
	stdout, stderr := e.log.writer(logCtx, "stdout", logInfo), e.log.writer(logCtx, "stderr", logWarn)
	in := &instance{engine: e, output: []*lineWriter{stdout, stderr}, scope: newScope(e.settings.rights)}
	// No file system, environment, arguments or sockets.
	conf := in.scope.moduleConfig(wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").
		WithStdout(stdout).WithStderr(stderr))
	err := in.scope.start(ctx, func(ctx context.Context) error { return in.init(ctx, conf) })
	if err != nil {
		return nil, err
	}
	return in, nil
}

// init starts the guest and makes it ready for batches.
func (in *instance) init(ctx context.Context, conf wazero.ModuleConfig) (err error) {
	e := in.engine
	if in.module, err = e.runtime.InstantiateModule(ctx, e.compiled, conf); err != nil {
		in.flush()
		return e.explain(err)
	}
	in.measure()
	if in.session, err = e.abi.attach(ctx, in); err != nil {
		in.close(ctx)
		return err
	}
	in.measure()
	return nil
}

// handle gives the instance a batch. If usable is false it must be closed: it trapped, exited, answered nonsense or is worn out.
func (in *instance) handle(ctx context.Context, batch []*event.Delta) (results []plugins.Result, usable bool, err error) {
	results, err = in.scope.handle(ctx, batch, in.session)
	in.calls++
	in.measure()
	usable = err == nil || errors.Is(err, errTooMuch)
	return results, usable && !in.worn(), err
}

// worn reports whether it is time for a new instance.
func (in *instance) worn() bool {
	if in.calls >= recycleCalls {
		return true
	}
	limit := in.engine.settings.memory
	if in.size*100 < limit*recyclePercent {
		return false
	}
	if in.calls < recycleCalls/100 {
		in.engine.tight.Do(func() {
			in.engine.settings.env.Log.Warn("guests reach three quarters of their memory soon and are replaced often: raise limits.memory",
				"calls", in.calls, "memory", in.size, "limit", limit)
		})
	}
	return true
}

// measure counts what the memory grew by.
func (in *instance) measure() {
	size := uint64(0)
	if mem := in.module.Memory(); mem != nil && !in.module.IsClosed() {
		pages, _ := mem.Grow(0) // Size overflows at 4 GiB
		size = uint64(pages) * pageSize
	}
	in.account(size)
}

func (in *instance) account(size uint64) {
	in.engine.memory.Add(float64(size) - float64(in.size))
	in.size = size
}

func (in *instance) flush() {
	for _, w := range in.output {
		w.flush()
	}
}

// close ends the instance; what it wrote last is logged.
func (in *instance) close(ctx context.Context) {
	in.flush()
	in.account(0)
	if err := in.module.Close(ctx); err != nil {
		in.engine.settings.env.Log.Warn("closing a guest failed", "error", err)
	}
}

// explain makes an error of a call fit to be read: what happened, without the guest's stack trace, which goes to the debug log.
func (e *engine) explain(err error) error {
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("the guest exited with code %d", exit.ExitCode())
	}
	reason, trace, _ := strings.Cut(err.Error(), "\n")
	if trace != "" {
		e.settings.env.Log.Debug("guest trapped", "reason", reason, "trace", trace[:min(len(trace), maxLogLine)])
	}
	return fmt.Errorf("the guest trapped: %s", strings.TrimPrefix(reason, "wasm error: "))
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
	e.log.report()
	e.settings.rights.close()
	return e.runtime.Close(ctx)
}
