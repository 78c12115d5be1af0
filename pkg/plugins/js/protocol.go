package js

import (
	"context"
	"errors"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

const (
	// meterStack bounds the stack by the estimate of package meter, some 36 KiB per call in
	// JavaScript. The engine's own bound comes first: it throws a RangeError at a depth of about a
	// thousand.
	meterStack  = 40 << 20
	engineStack = 256 << 10
)

// protocol is how the host speaks with the engine. It implements [engine.Protocol].
type protocol struct {
	code  code
	fresh bool   // each delta finds the state after the start
	large string // largeIntegers
}

var _ engine.Protocol = protocol{}

// Stack implements [engine.Protocol].
func (protocol) Stack() int32 { return meterStack }

// CheckImports implements [engine.Protocol]. The content of the engine is pinned.
func (protocol) CheckImports(*host.Host, []meter.Import) error { return nil }

// Check implements [engine.Protocol].
func (protocol) Check(wazero.CompiledModule) error { return nil }

// Hint implements [engine.Protocol].
func (protocol) Hint(_ wazero.CompiledModule, err error) error { return err }

// Provide implements [engine.Protocol].
func (protocol) Provide(ctx context.Context, _ *host.Host, runtime wazero.Runtime) error {
	b := runtime.NewHostModuleBuilder("env")
	for _, f := range []struct {
		name   string
		params int
		result bool
		call   function
	}{
		{"host_call", 5, true, hostCall},
		{"host_interrupt", 0, true, nothing}, // the fuel ends the guest
		{"host_promise_rejection", 3, false, freeRejection},
		{"host_module_normalize", 2, true, nothing},
		{"host_module_load", 2, true, nothing},
		{"host_get_timezone_offset", 2, true, nothing}, // UTC
	} {
		params, results := make([]api.ValueType, f.params), []api.ValueType{api.ValueTypeI32}
		for i := range params {
			params[i] = api.ValueTypeI32
		}
		if !f.result {
			results = nil
		}
		b.NewFunctionBuilder().WithGoModuleFunction(imported{f.call, f.result}, params, results).Export(f.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// function is a function that the engine imports. v calls the engine from within.
type function func(ctx context.Context, stack []uint64, of host.Services, v *vm) uint32

func nothing(context.Context, []uint64, host.Services, *vm) uint32 { return 0 }

// withinKey is the key of the [vm] that functions of the host use, while the engine calls them.
type withinKey struct{}

// imported implements [api.GoModuleFunction].
type imported struct {
	call   function
	result bool
}

var errNested = errors.New("the engine called the host from within a function of the host")

// Call implements [api.GoModuleFunction]. The calls of the engine from within one of its calls are
// not nested any further, because they share functions of the engine.
func (f imported) Call(ctx context.Context, _ api.Module, stack []uint64) {
	services, ok := host.ServicesOf(ctx)
	v, within := ctx.Value(withinKey{}).(*vm)
	if !ok || !within || v.busy {
		panic(errNested) //nolint:forbidigo // how wazero unwinds a guest
	}
	v.busy = true
	defer func() { v.busy = false }()
	if result := f.call(ctx, stack, services, v); f.result {
		stack[0] = uint64(result)
	}
}

// hostNames returns the functions of the host, in the order of the parameters of prelude.js. The
// configuration of the handler and largeIntegers follow.
func hostNames() []string {
	return []string{"log", "lookup", "http", "load", "store", "remove", "seed"}
}

// longestNumber is the length of the longest number that a handler may pass.
const longestNumber = 32

// hostCall implements host_call(name, nameSize, this, argc, argv): the handler calls a function of
// the host. The result is a string: + and an answer, or the number of an error.
func hostCall(ctx context.Context, stack []uint64, services host.Services, v *vm) uint32 {
	name, _ := v.memory.Read(uint32(stack[0]), uint32(stack[1]))
	function := string(name)
	var args [3]string
	bytes := 0
	for i := range min(int(uint32(stack[3])), len(args)) {
		at, _ := v.memory.ReadUint32Le(uint32(stack[4]) + uint32(4*i))
		args[i] = v.must(v.text(ctx, uint64(at)))
		bytes += len(args[i])
	}
	services.Called(bytes)
	answer, status := serve(ctx, services, function, args)
	reply := strconv.Itoa(int(status))
	if status >= 0 {
		reply = "+" + string(answer)
	}
	value, err := v.newString(ctx, reply)
	if err != nil {
		panic(err) //nolint:forbidigo // how wazero unwinds a guest
	}
	return uint32(value)
}

// serve executes a function of the host.
func serve(ctx context.Context, of host.Services, function string, args [3]string) ([]byte, int32) {
	switch function {
	case "log":
		level, _ := strconv.ParseUint(args[0], 10, 8)
		of.Log(ctx, uint32(level), args[1])
		return nil, abi.StatusOK
	case "lookup":
		return of.Lookup(ctx, args[0])
	case "http":
		return of.HTTP(ctx, args[0])
	case "load":
		return of.Load(args[0])
	case "store":
		ttl, err := strconv.ParseFloat(args[2][:min(len(args[2]), longestNumber)], 64)
		if err != nil || !(ttl >= 0 && ttl < 1<<53) {
			return nil, abi.StatusInvalid
		}
		return nil, of.Store(args[0], args[1], int64(ttl))
	case "remove":
		return nil, of.Remove(args[0])
	case "seed":
		return []byte(of.Seed()), abi.StatusOK
	}
	return nil, abi.StatusInvalid
}

// freeRejection implements host_promise_rejection(promise, reason, handled). A rejected promise
// that the handler ignores has no effect.
func freeRejection(ctx context.Context, stack []uint64, _ host.Services, v *vm) uint32 {
	promise, reason := stack[0], stack[1]
	v.must("", v.free(ctx, promise))
	v.must("", v.free(ctx, reason))
	return 0
}
