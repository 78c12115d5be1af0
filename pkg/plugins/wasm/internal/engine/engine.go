package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/limits"
)

// Settings are the settings of an engine.
type Settings struct {
	Module []byte
	Config string // JSON, "null" if there is none
	Limits limits.Limits
	Host   *host.Host
	Env    plugins.HandlerEnv
}

// Engine is a compiled module, and makes instances of it. It has its own runtime, so Close frees
// everything.
//
// The runtime does not check the context during a call (WithCloseOnContextDone), because that makes
// guests up to 27 times slower. The pauses of guests check it.
type Engine struct {
	Settings
	runtime  wazero.Runtime
	metered  *meter.Module
	compiled wazero.CompiledModule
	cache    wazero.CompilationCache // nil: none
	pauses   uint64                  // the reference of the pause function
	protocol protocol
	memory   adder // bytes of all instances
	fuel     adder // burnt by all instances
	tight    sync.Once
}

// adder is the part of a metric that Engine uses.
type adder interface{ Add(float64) }

// New compiles the module and links its imports.
func New(ctx context.Context, s Settings) (*Engine, error) {
	if err := checkHeader(s.Module); err != nil {
		return nil, err
	}
	e := &Engine{
		Settings: s,
		protocol: v1{},
		memory:   s.Env.Metrics.GuestMemory.WithLabelValues(s.Env.Name),
		fuel:     s.Env.Metrics.GuestFuel.WithLabelValues(s.Env.Name),
	}
	if err := e.compile(ctx); err != nil {
		return nil, err
	}
	if err := e.link(ctx); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// link adds the host functions to the runtime, and reports imports that it cannot provide.
func (e *Engine) link(ctx context.Context) error {
	if err := host.ProvideWASI(ctx, e.runtime); err != nil {
		return err
	}
	if err := e.Host.Provide(ctx, e.runtime); err != nil {
		return fmt.Errorf("host functions: %w", err)
	}
	return e.protocol.check(e.compiled)
}

// checkHeader distinguishes the most frequent mistakes.
func checkHeader(module []byte) error {
	switch {
	case !bytes.HasPrefix(module, []byte("\x00asm")):
		return errors.New("not a WebAssembly module: it does not start with \\0asm")
	case bytes.HasPrefix(module, []byte("\x00asm\x0d\x00\x01\x00")):
		return errors.New("a WebAssembly component (wasip2): only core modules (wasip1) are supported")
	}
	return nil
}

// errExit is wrapped by the error of a guest that ended itself.
var errExit = errors.New("the guest exited")

// longestTrace is the maximum length of a guest's stack trace in the log, in bytes.
const longestTrace = 4 << 10

// explain makes the error of a call readable. It removes the guest's stack trace, which goes to the
// debug log.
func (in *Instance) explain(err error) error {
	limits := &in.engine.Limits
	switch why := in.scope.Ended(); {
	case why == host.ErrFuel && in.session == nil: //nolint:errorlint // never wrapped
		return fmt.Errorf("%w: its start takes more than %d instructions: raise limits.initFuel", host.ErrFuel, limits.InitFuel)
	case why == host.ErrTime && in.session == nil: //nolint:errorlint // never wrapped
		return fmt.Errorf("%w: its start takes longer than %s: raise limits.initTimeout", host.ErrTime, limits.InitTimeout)
	case why == host.ErrTime: //nolint:errorlint // never wrapped
		return fmt.Errorf("%w: one delta takes longer than %s: raise limits.timeout, or do less", host.ErrTime, limits.Timeout)
	case why == host.ErrFuel: //nolint:errorlint // never wrapped
		return fmt.Errorf("%w: one delta takes more than %d instructions: raise limits.fuel, or do less", host.ErrFuel, limits.Fuel)
	case why != nil:
		return why
	}
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w with code %d", errExit, exit.ExitCode())
	}
	reason, trace, _ := strings.Cut(err.Error(), "\n")
	if trace != "" {
		in.engine.Env.Log.Debug("guest trapped", "reason", reason, "trace", trace[:min(len(trace), longestTrace)])
	}
	return fmt.Errorf("the guest trapped: %s", strings.TrimPrefix(reason, "wasm error: "))
}

// Ended counts an instance that is discarded.
func (e *Engine) Ended(in *Instance, err error) {
	reason := "trap"
	switch {
	case err == nil && in.calls >= int(e.Limits.Calls):
		reason = "calls"
	case err == nil:
		reason = "memory"
	case errors.Is(err, host.ErrFuel):
		reason = "fuel"
	case errors.Is(err, host.ErrTime):
		reason = "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		reason = "canceled"
	case errors.Is(err, host.ErrStack):
		reason = "stack"
	case errors.Is(err, errExit):
		reason = "exit"
	case errors.Is(err, abi.ErrMalformed):
		reason = "answer"
	}
	e.Env.Metrics.GuestsEnded.WithLabelValues(e.Env.Name, reason).Inc()
}

// Interpreted reports whether wazero uses its interpreter, which is about twenty times slower than
// compiled code. wazero chooses it without a message.
func (in *Instance) Interpreted() bool {
	for name := range in.engine.compiled.ExportedFunctions() {
		return strings.Contains(fmt.Sprintf("%T", in.module.ExportedFunction(name)), "interpreter")
	}
	return false
}

// Close frees the module and all its instances.
func (e *Engine) Close(ctx context.Context) error {
	e.Host.Close()
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}

// protocol is a way to communicate with guests. The only one is [v1]. A new protocol requires no
// change of the engine and the pool.
type protocol interface {
	// check returns an error if a module does not implement the protocol.
	check(module wazero.CompiledModule) error
	// attach prepares a new instance for batches.
	attach(ctx context.Context, in *Instance) (host.Session, error)
}
