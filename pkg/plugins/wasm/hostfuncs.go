package wasm

import (
	"context"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// What host functions return beside a result, which is never negative.
const (
	statusOK       = 0
	statusNotFound = -1
	statusInvalid  = -4 // an argument is out of bounds; -2, -3 and -5 are denied, over quota and too late
)

// provide implements abi. None of these functions waits, and none panics.
func (v1) provide(ctx context.Context, e *engine) error {
	conf := rawjson.Value(e.settings.config)
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	b := e.runtime.NewHostModuleBuilder("rtr_v1")
	export := func(name string, f hostFunc, result api.ValueType, params ...api.ValueType) {
		b.NewFunctionBuilder().WithGoModuleFunction(f, params, []api.ValueType{result}).Export(name)
	}
	export("log", e.hostLog, i32, i32, i32, i32)
	export("config_get", func(_ context.Context, m api.Module, stack []uint64) {
		stack[0] = api.EncodeI32(hostConfig(m.Memory(), conf, stack))
	}, i32, i32, i32, i32, i32)
	export("now_ns", func(_ context.Context, _ api.Module, stack []uint64) {
		stack[0] = uint64(time.Now().UnixNano())
	}, i64)
	_, err := b.Instantiate(ctx)
	return err
}

// hostFunc is called with its arguments on the stack and leaves its result there.
type hostFunc func(ctx context.Context, m api.Module, stack []uint64)

// Call implements api.GoModuleFunction.
func (f hostFunc) Call(ctx context.Context, m api.Module, stack []uint64) { f(ctx, m, stack) }

// hostLog is log(level, ptr, len): 0 debug, 1 info, 2 warn, 3 error.
func (e *engine) hostLog(ctx context.Context, m api.Module, stack []uint64) {
	level, ptr, n := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	mem := m.Memory()
	if mem == nil || level > 3 {
		stack[0] = api.EncodeI32(statusInvalid)
		return
	}
	text, ok := mem.Read(ptr, n)
	if !ok {
		stack[0] = api.EncodeI32(statusInvalid)
		return
	}
	e.log.line(ctx, slog.Level(4*int(level)-4), "log", text)
	stack[0] = statusOK
}

// hostConfig is config_get(key, keyLen, buf, limit): it writes the JSON of a key of the configuration, or of all of it if the key
// is empty, and returns its length. If that is more than limit, nothing is written.
func hostConfig(mem api.Memory, conf rawjson.Value, stack []uint64) int32 {
	if mem == nil {
		return statusInvalid
	}
	key, ok := mem.Read(uint32(stack[0]), uint32(stack[1]))
	if !ok {
		return statusInvalid
	}
	value := conf
	if len(key) > 0 {
		value = conf.Get(string(key))
	}
	if value.Kind() == rawjson.Absent {
		return statusNotFound
	}
	if uint64(len(value)) <= stack[3]&0xffffffff && !mem.WriteString(uint32(stack[2]), string(value)) {
		return statusInvalid
	}
	return int32(len(value))
}
