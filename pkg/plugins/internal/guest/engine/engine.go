package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// Settings are the settings of an engine.
type Settings struct {
	Module   []byte
	Protocol Protocol
	Config   string // JSON, "null" if there is none
	Limits   abi.Limits
	Host     *host.Host
	Env      plugins.HandlerEnv
	// Shared has the code that other engines of the same module and protocol made. nil: the last
	// engine of this module that is closed frees its code.
	Shared *Shared
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
	// closeCode ends the use of the compiled code; nil: the runtime does, or it is Shared
	closeCode func(context.Context) error
	pauses    uint64 // the reference of the pause function
	memory    adder  // bytes of all instances
	fuel      adder  // burnt by all instances
	tight     sync.Once
	profiler  *profiler // nil: no replay
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
		memory:   s.Env.Count(plugins.GuestMemory),
		fuel:     s.Env.Count(plugins.GuestFuel),
	}
	if callrecord.ReplayOf(s.Env.Replay) != nil {
		e.profiler = &profiler{}
		ctx = experimental.WithFunctionListenerFactory(ctx, e.profiler)
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
	if err := e.Protocol.Provide(ctx, e.Host, e.runtime); err != nil {
		return fmt.Errorf("host functions: %w", err)
	}
	return e.Protocol.Check(e.compiled)
}

// checkHeader distinguishes the most frequent mistakes. A header is the magic number, a version and
// a layer of two bytes each. The layer of core modules is 0, that of components is 1.
func checkHeader(module []byte) error {
	const headerSize = 8
	switch {
	case !bytes.HasPrefix(module, []byte("\x00asm")):
		return errors.New("not a WebAssembly module: it does not start with \\0asm")
	case len(module) >= headerSize && module[6] == 1 && module[7] == 0:
		return fmt.Errorf("a WebAssembly component, as toolchains build for WASI 0.2 and later: the router runs core modules only: %s", host.BuildForWASI1)
	}
	return nil
}

// errExit is wrapped by the error of a guest that ended itself.
var errExit = errors.New("the guest exited")

// longestTrace is the maximum length of a guest's stack trace in the log, in bytes.
const longestTrace = 4 << 10

// Explain makes the error of a call readable. It removes the guest's stack trace, which goes to the
// debug log.
func (in *Instance) Explain(err error) error {
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
	case err == nil && in.exited:
		reason = "exit"
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
	e.Env.Count(plugins.GuestsEnded, reason).Add(1)
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
	if e.closeCode != nil {
		err = errors.Join(err, e.closeCode(ctx))
	}
	return err
}

// Protocol is a way to communicate with guests. [V1] is that of modules for the router. A new
// protocol requires no change of the engine and the pool.
type Protocol interface {
	// Stack bounds the stack of a guest, in bytes. 0: the default of package meter.
	Stack() int32
	// CheckImports returns an error about imports that Provide does not add.
	CheckImports(of *host.Host, imports []meter.Import) error
	// Provide adds the functions for guests to a runtime, in addition to those of WASI.
	Provide(ctx context.Context, of *host.Host, runtime wazero.Runtime) error
	// Check returns an error if a module does not implement the protocol.
	Check(module wazero.CompiledModule) error
	// Attach prepares a new instance for batches.
	Attach(ctx context.Context, in *Instance) (Session, error)
	// Hint adds the probable cause to the error of a first start.
	Hint(module wazero.CompiledModule, err error) error
}

// Session is a guest that handles batches.
type Session interface {
	// Handle passes a batch, with a maximum size in bytes, to the guest. It returns one result per
	// delta, or none if every delta is ok. After an error other than [abi.ErrTooMuch] the state of
	// the instance is undefined.
	Handle(ctx context.Context, batch []*event.Delta, size int) ([]plugins.Result, error)
}

// Starter is a [Protocol] whose functions need a state before [Protocol.Attach].
type Starter interface {
	// Begin returns the context for the start of an instance.
	Begin(ctx context.Context) context.Context
}

// Holder is a [Session] that has memory beside that of its guest.
type Holder interface {
	// Held returns its size in bytes.
	Held() uint64
}

// Reviver is a [Session] that can repair its instance.
type Reviver interface {
	// Revive gives the instance the state that it had after its start. It returns false if that is
	// not possible, and the instance must be replaced.
	Revive() bool
}

// Process is a [Session] of a command: its guest runs on from one call to the next, and may
// end by itself.
type Process interface {
	// Ended reports whether the guest has ended, which need not be an error.
	Ended() bool
	// Stop ends the guest. If it is idle, it may first react to the end of its input.
	Stop(ctx context.Context)
}

// Hint adds the probable cause to the error of a first start.
func (e *Engine) Hint(err error) error { return e.Protocol.Hint(e.compiled, err) }
