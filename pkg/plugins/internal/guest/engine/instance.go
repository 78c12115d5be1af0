package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// An instance is replaced when it uses this part of its memory limit, in percent, because memory
// never shrinks. If this happens before RecycleSoon calls, the limit is too low.
const (
	recyclePercent = 75
	RecycleSoon    = 1000
)

// Instance is one guest with its own memory. One goroutine uses it at a time.
type Instance struct {
	session Session

	engine *Engine
	scope  *host.Scope // the state of its host functions
	module api.Module
	calls  int
	exited bool   // it is a command that has ended by itself, without an error
	size   uint64 // of its memory
	all    uint64 // of its memory and native stack, as counted in engine.memory
}

// Start makes an instance without file system, environment, arguments and sockets. After an error
// no part of it is left.
func (e *Engine) Start(ctx context.Context) (*Instance, error) {
	in := &Instance{engine: e, scope: e.Host.NewScope(ctx)}
	ctx = in.scope.Start(ctx)
	defer in.scope.End()
	if p, ok := e.Protocol.(Starter); ok {
		ctx = p.Begin(ctx)
	}
	if err := in.init(ctx); err != nil {
		return nil, err
	}
	if err := in.scope.Commit(); err != nil {
		in.Close(ctx)
		return nil, err
	}
	return in, nil
}

// init starts the guest and prepares it for batches.
func (in *Instance) init(ctx context.Context) (err error) {
	e := in.engine
	var memories allocated
	ctx = experimental.WithMemoryAllocator(ctx, &memories)
	if in.module, err = e.runtime.InstantiateModule(ctx, e.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		memories.free()
		in.flush()
		return fmt.Errorf("its memory and tables cannot be set up: %w", in.Explain(err))
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
			return fmt.Errorf("its start section: %w", in.Explain(err))
		}
	}
	if f := in.module.ExportedFunction("_initialize"); f != nil {
		if _, err := f.Call(ctx); err != nil {
			return fmt.Errorf("_initialize: %w", in.Explain(err))
		}
	}
	session, err := in.engine.Protocol.Attach(ctx, in)
	if err == nil {
		err = in.unpaid()
	}
	in.session = session
	return err
}

// unpaid returns an error if the guest has used more fuel than it had. A function may return all
// the same, see package meter.
func (in *Instance) unpaid() error {
	if errors.Is(in.scope.Ended(), host.ErrFuel) {
		return in.Explain(host.ErrFuel)
	}
	return nil
}

// arm enables the pauses of an instance. No code of the guest has run before.
func (in *Instance) arm(ctx context.Context) error {
	if name := in.engine.metered.Arm; name != "" {
		if _, err := in.module.ExportedFunction(name).Call(ctx, in.engine.pauses); err != nil {
			return fmt.Errorf("pauses: %w", err)
		}
	}
	return nil
}

// Handle passes a batch to the instance. If usable is false, the caller must close the instance: it
// has trapped, exited or given a malformed answer, or it is worn out.
func (in *Instance) Handle(ctx context.Context, batch []*event.Delta, size int) (results []plugins.Result, usable bool, err error) {
	results, err = in.call(ctx, batch, size)
	in.engine.fuel.Add(float64(in.scope.Used()))
	in.calls++
	in.measure()
	usable = err == nil || errors.Is(err, abi.ErrTooMuch) || errors.Is(err, host.ErrMixed) || plugins.ClassOf(err) == plugins.Postponed && in.scope.Answered()
	if !usable && in.revive() {
		in.engine.Ended(in, err)
		usable = true
	}
	if p, ok := in.session.(Process); ok && p.Ended() {
		in.exited = err == nil
		usable = false
	}
	return results, usable && !in.exhausted(), err
}

// call passes a batch to the session, between the beginning and the end of a call of the host. A
// guest that has used more fuel than it had fails even if it has answered.
func (in *Instance) call(ctx context.Context, batch []*event.Delta, size int) ([]plugins.Result, error) {
	ctx = in.scope.Begin(ctx, batch, size)
	defer in.scope.End()
	results, err := in.session.Handle(ctx, batch, size)
	if err == nil {
		err = in.unpaid()
	}
	return in.scope.Conclude(results, err)
}

// revive repairs an instance after an error, if its protocol can.
func (in *Instance) revive() bool {
	session, ok := in.session.(Reviver)
	if !ok || !session.Revive() {
		return false
	}
	in.scope.Recorder().Restarted()
	return true
}

// Skipper is a session whose guest sees the number of each delta.
type Skipper interface {
	// Skip counts deltas that the guest does not get. They are not negative.
	Skip(deltas int)
}

// Skip counts deltas that the guest does not get, because a replay has no record of them.
func (in *Instance) Skip(deltas int) {
	if s, ok := in.session.(Skipper); ok {
		s.Skip(deltas)
	}
}

// Record returns the record of the last call, or nil if there must be none.
func (in *Instance) Record() *callrecord.Record {
	if in.engine.Host.Withheld() {
		return nil
	}
	return in.scope.Recorder().Record()
}

// Trim frees the inputs of a call that has succeeded, unless later records have them.
func (in *Instance) Trim() { in.scope.Recorder().Trim() }

// Exited reports whether the instance is a command that has ended by itself, without an error.
func (in *Instance) Exited() bool { return in.exited }

// Connect connects a command to its stdin and stdout, before its code runs. It returns the log for
// the lines of stdout that are no answers.
func (in *Instance) Connect(c host.Console) *lines.Writer { return in.scope.Connect(c) }

// Module returns the module of the instance.
func (in *Instance) Module() api.Module { return in.module }

// Settings returns the settings of the engine.
func (in *Instance) Settings() *Settings { return &in.engine.Settings }

// Calls returns the number of calls of the instance.
func (in *Instance) Calls() int { return in.calls }

// Used returns the fuel of the last call.
func (in *Instance) Used() int64 { return in.scope.Used() }

// OverRate returns the time until a request is possible that exceeded a host's rate in the last
// call. 0: there was none.
func (in *Instance) OverRate() time.Duration { return in.scope.OverRate() }

// Outage returns the error of a request without a response for which the last call, or a delta of
// it, has failed. nil: there was none.
func (in *Instance) Outage() error { return in.scope.Outage() }

// exhausted reports whether the instance must be replaced.
func (in *Instance) exhausted() bool {
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

// measure counts the growth of the memory and the native stack.
func (in *Instance) measure() {
	size := uint64(0)
	if mem := in.module.Memory(); mem != nil && !in.module.IsClosed() {
		pages, _ := mem.Grow(0) // the method Size overflows at 4 GiB
		size = uint64(pages) * abi.PageSize
	}
	in.size = size
	if s, ok := in.session.(Holder); ok {
		size += s.Held()
	}
	in.account(size + in.scope.NativeStack())
}

func (in *Instance) account(all uint64) {
	in.engine.memory.Add(float64(all) - float64(in.all))
	in.all = all
}

func (in *Instance) flush() {
	in.scope.Flush()
}

// Close ends the instance and logs its last output.
func (in *Instance) Close(ctx context.Context) {
	if p, ok := in.session.(Process); ok {
		p.Stop(in.scope.Finish(ctx))
		in.engine.fuel.Add(float64(in.scope.Used()))
		in.scope.End()
	}
	in.flush()
	in.account(0)
	if err := in.module.Close(ctx); err != nil {
		in.engine.Env.Log.Warn("closing a guest failed", "err", err)
	}
}
