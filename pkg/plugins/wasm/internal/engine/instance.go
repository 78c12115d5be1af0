package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/limits"
)

// An instance is replaced when so much of its memory limit is in use, in percent: memory never
// shrinks. If that comes within fewer calls than RecycleSoon, the limit is too low.
const (
	recyclePercent = 75
	RecycleSoon    = 1000
)

// Instance is one guest with a memory of its own. It is used by one goroutine at a time.
type Instance struct {
	session host.Session

	engine *Engine
	scope  *host.Scope // what its host functions know
	module api.Module
	calls  int
	size   uint64 // of its memory
	all    uint64 // that and its native stack, as counted in engine.memory
}

// Start makes an instance. After an error nothing of it is left. It has no file system,
// environment, arguments or sockets.
func (e *Engine) Start(ctx context.Context) (*Instance, error) {
	in := &Instance{engine: e, scope: e.Host.NewScope(ctx)}
	ctx = in.scope.Start(ctx)
	defer in.scope.End()
	if err := in.init(ctx); err != nil {
		return nil, err
	}
	if err := in.scope.Commit(); err != nil {
		in.Close(ctx)
		return nil, err
	}
	return in, nil
}

// init starts the guest and makes it ready for batches.
func (in *Instance) init(ctx context.Context) (err error) {
	e := in.engine
	var memories allocated
	ctx = experimental.WithMemoryAllocator(ctx, &memories)
	if in.module, err = e.runtime.InstantiateModule(ctx, e.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		memories.free()
		in.flush()
		return fmt.Errorf("its memory and tables cannot be set up: %w", in.explain(err))
	}
	in.scope.Open(in.module, e.metered)
	in.measure()
	err = in.initialize(ctx)
	e.fuel.Add(float64(in.scope.Used()))
	in.measure()
	if err != nil {
		in.Close(ctx)
	}
	return err
}

func (in *Instance) initialize(ctx context.Context) (err error) {
	if err := in.arm(ctx); err != nil {
		return err
	}
	if name := in.engine.metered.Start; name != "" {
		if _, err := in.module.ExportedFunction(name).Call(ctx); err != nil {
			return fmt.Errorf("its start section: %w", in.explain(err))
		}
	}
	if f := in.module.ExportedFunction("_initialize"); f != nil {
		if _, err := f.Call(ctx); err != nil {
			return fmt.Errorf("_initialize: %w", in.explain(err))
		}
	}
	in.session, err = in.engine.protocol.attach(ctx, in)
	return err
}

// arm lets an instance pause. Nothing of the guest has run before.
func (in *Instance) arm(ctx context.Context) error {
	if name := in.engine.metered.Arm; name != "" {
		if _, err := in.module.ExportedFunction(name).Call(ctx, in.engine.pauses); err != nil {
			return fmt.Errorf("pauses: %w", err)
		}
	}
	return nil
}

// Handle gives the instance a batch. If usable is false it must be closed: it trapped, exited,
// answered nonsense or is worn out.
func (in *Instance) Handle(ctx context.Context, batch []*event.Delta, size int) (results []plugins.Result, usable bool, err error) {
	results, err = in.scope.Handle(ctx, batch, size, in.session)
	in.engine.fuel.Add(float64(in.scope.Used()))
	in.calls++
	in.measure()
	usable = err == nil || errors.Is(err, abi.ErrTooMuch)
	return results, usable && !in.worn(), err
}

// Calls returns how often the instance was called.
func (in *Instance) Calls() int { return in.calls }

// Used returns the fuel that the last call has burnt.
func (in *Instance) Used() int64 { return in.scope.Used() }

// OverRate returns how long it takes until a host may be asked that the last call could not ask for
// its rate. 0: it could ask all.
func (in *Instance) OverRate() time.Duration { return in.scope.OverRate() }

// worn reports whether it is time for a new instance.
func (in *Instance) worn() bool {
	if in.calls >= int(in.engine.Limits.Calls) {
		return true
	}
	limit := uint64(in.engine.Limits.Memory)
	if in.size*100 < limit*recyclePercent {
		return false
	}
	if in.calls < RecycleSoon {
		in.engine.tight.Do(func() {
			in.engine.Env.Log.Warn("guests reach three quarters of their memory soon and are replaced often: raise limits.memory",
				"calls", in.calls, "memory", in.size, "limit", limit)
		})
	}
	return true
}

// measure counts what the memory and the native stack grew by.
func (in *Instance) measure() {
	size := uint64(0)
	if mem := in.module.Memory(); mem != nil && !in.module.IsClosed() {
		pages, _ := mem.Grow(0) // Size overflows at 4 GiB
		size = uint64(pages) * limits.PageSize
	}
	in.size = size
	in.account(size + in.scope.NativeStack())
}

func (in *Instance) account(all uint64) {
	in.engine.memory.Add(float64(all) - float64(in.all))
	in.all = all
}

func (in *Instance) flush() {
	in.scope.Flush()
}

// Close ends the instance; what it wrote last is logged.
func (in *Instance) Close(ctx context.Context) {
	in.flush()
	in.account(0)
	if err := in.module.Close(ctx); err != nil {
		in.engine.Env.Log.Warn("closing a guest failed", "err", err)
	}
}
