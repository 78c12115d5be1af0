package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/lines"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// instance is one guest with a memory of its own. It is used by one goroutine at a time.
type instance struct {
	session session

	engine *engine
	scope  *scope // what its host functions know
	module api.Module
	calls  int
	size   uint64 // of its memory, as counted in engine.memory
}

// start makes an instance. After an error nothing of it is left. It has no file system, environment, arguments or sockets.
func (e *engine) start(ctx context.Context) (*instance, error) {
	in := &instance{engine: e, scope: newScope(e.rights, &e.limits)}
	logging := context.WithoutCancel(ctx)
	in.scope.output = [2]*lines.Writer{e.log.Writer(logging, "stdout", slog.LevelInfo), e.log.Writer(logging, "stderr", slog.LevelWarn)}
	if err := in.scope.start(ctx, in.init); err != nil {
		return nil, err
	}
	return in, nil
}

// init starts the guest and makes it ready for batches.
func (in *instance) init(ctx context.Context) (err error) {
	e := in.engine
	ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(allocateMemory))
	if in.module, err = e.runtime.InstantiateModule(ctx, e.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		in.flush()
		return fmt.Errorf("its start section failed, or took more than limits.initFuel: %w", in.explain(err))
	}
	in.scope.open(e, in.module)
	in.measure()
	err = in.initialize(ctx)
	e.fuel.Add(float64(in.scope.tank.used()))
	in.measure()
	if err != nil {
		in.close(ctx)
	}
	return err
}

func (in *instance) initialize(ctx context.Context) (err error) {
	if f := in.module.ExportedFunction("_initialize"); f != nil {
		if _, err := f.Call(ctx); err != nil {
			return fmt.Errorf("_initialize: %w", in.explain(err))
		}
	}
	in.session, err = in.engine.abi.attach(ctx, in)
	return err
}

// handle gives the instance a batch. If usable is false it must be closed: it trapped, exited, answered nonsense or is worn out.
func (in *instance) handle(ctx context.Context, batch []*event.Delta, size int) (results []plugins.Result, usable bool, err error) {
	results, err = in.scope.handle(ctx, batch, size, in.session)
	in.engine.fuel.Add(float64(in.scope.tank.used()))
	in.calls++
	in.measure()
	usable = err == nil || errors.Is(err, errTooMuch)
	return results, usable && !in.worn(), err
}

// worn reports whether it is time for a new instance.
func (in *instance) worn() bool {
	if in.calls >= int(in.engine.limits.Calls) {
		return true
	}
	limit := uint64(in.engine.limits.Memory)
	if in.size*100 < limit*recyclePercent {
		return false
	}
	if in.calls < recycleSoon {
		in.engine.tight.Do(func() {
			in.engine.env.Log.Warn("guests reach three quarters of their memory soon and are replaced often: raise limits.memory",
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
	for _, w := range in.scope.output {
		w.Flush()
	}
}

// close ends the instance; what it wrote last is logged.
func (in *instance) close(ctx context.Context) {
	in.flush()
	in.account(0)
	if err := in.module.Close(ctx); err != nil {
		in.engine.env.Log.Warn("closing a guest failed", "error", err)
	}
}
