package js

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"
)

// vm calls the exports of the engine. A value is the address of a boxed value in its memory, and
// must be freed. Texts are bytes of UTF-8, in which a lone surrogate has three bytes.
type vm struct {
	module    api.Module
	memory    api.Memory
	functions map[string]api.Function
	explain   func(error) error // nil: the error of the call
	busy      bool              // a function of the host uses it
}

func newVM(m api.Module) *vm {
	return &vm{module: m, memory: m.Memory(), functions: make(map[string]api.Function)}
}

// errMemory is the error of a handler whose engine has no memory left.
var errMemory = errors.New("out of memory: raise limits.memory, or keep less")

// must returns a text, or ends the guest in a function of the host.
func (v *vm) must(text string, err error) string {
	if err != nil {
		panic(err) //nolint:forbidigo // how wazero unwinds a guest
	}
	return text
}

// call calls an export with at most four parameters.
func (v *vm) call(ctx context.Context, name string, params ...uint64) (uint64, error) {
	f := v.functions[name]
	if f == nil {
		if f = v.module.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("the engine has no function %s", name)
		}
		v.functions[name] = f
	}
	var stack [4]uint64
	copy(stack[:], params)
	if err := f.CallWithStack(ctx, stack[:max(len(params), 1)]); err != nil {
		if v.explain != nil {
			err = v.explain(err)
		}
		return 0, err
	}
	return stack[0], nil
}

// put copies bytes and a zero into the memory of the engine.
func (v *vm) put(ctx context.Context, text string) (uint64, error) {
	at, err := v.call(ctx, "wasm_malloc", uint64(len(text))+1)
	if err != nil {
		return 0, err
	}
	if at == 0 || !v.memory.WriteString(uint32(at), text) || !v.memory.WriteByte(uint32(at)+uint32(len(text)), 0) {
		return 0, errMemory
	}
	return at, nil
}

func (v *vm) release(ctx context.Context, at uint64) error {
	_, err := v.call(ctx, "wasm_free", at)
	return err
}

func (v *vm) free(ctx context.Context, value uint64) error {
	_, err := v.call(ctx, "qjs_free_value", value)
	return err
}

// newString returns a string of JavaScript.
func (v *vm) newString(ctx context.Context, text string) (uint64, error) {
	at, err := v.put(ctx, text)
	if err != nil {
		return 0, err
	}
	value, err := v.call(ctx, "qjs_new_string", at, uint64(len(text)))
	if err != nil {
		return 0, err
	}
	if value == 0 {
		return 0, errMemory
	}
	return value, v.release(ctx, at)
}

// text converts a value to text.
func (v *vm) text(ctx context.Context, value uint64) (string, error) {
	size, err := v.call(ctx, "wasm_malloc", 4)
	if err != nil {
		return "", err
	}
	if size == 0 {
		return "", errMemory
	}
	at, err := v.call(ctx, "qjs_get_string_len", value, size)
	if err != nil {
		return "", err
	}
	if at == 0 {
		return "", errMemory
	}
	length, _ := v.memory.ReadUint32Le(uint32(size))
	text, ok := v.memory.Read(uint32(at), length)
	if !ok {
		return "", errMemory
	}
	result := string(text)
	if _, err := v.call(ctx, "qjs_free_cstring", at); err != nil {
		return "", err
	}
	return result, v.release(ctx, size)
}

// property returns a property of an object.
func (v *vm) property(ctx context.Context, object uint64, name string) (uint64, error) {
	at, err := v.put(ctx, name)
	if err != nil {
		return 0, err
	}
	value, err := v.call(ctx, "qjs_get_prop_string", object, at)
	if err != nil {
		return 0, err
	}
	return value, v.release(ctx, at)
}

// function returns a function that calls the host.
func (v *vm) function(ctx context.Context, name string) (uint64, error) {
	at, err := v.put(ctx, name)
	if err != nil {
		return 0, err
	}
	value, err := v.call(ctx, "qjs_new_host_function", at, uint64(len(name)), 0)
	if err != nil {
		return 0, err
	}
	return value, v.release(ctx, at)
}

// thrown is an exception of the code.
type thrown struct{ message, stack string }

func (t *thrown) Error() string { return t.message }

// checked returns a value, or the exception that it stands for as a [thrown].
func (v *vm) checked(ctx context.Context, value uint64, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	if value == 0 {
		return 0, errMemory
	}
	if is, err := v.call(ctx, "qjs_is_exception", value); err != nil || is == 0 {
		return value, err
	}
	exception, err := v.call(ctx, "qjs_get_exception")
	if err != nil {
		return 0, err
	}
	return 0, v.describe(ctx, exception)
}

// describe returns an exception as an error.
func (v *vm) describe(ctx context.Context, exception uint64) error {
	t := &thrown{}
	var err error
	if t.message, err = v.text(ctx, exception); err != nil {
		return err
	}
	if is, err := v.call(ctx, "qjs_is_error", exception); err != nil || is == 0 {
		return errors.Join(err, t)
	}
	stack, err := v.property(ctx, exception, "stack")
	if err != nil {
		return err
	}
	if t.stack, err = v.text(ctx, stack); err != nil {
		return err
	}
	return t
}

// eval evaluates code. flags 1: it is a module, and the result is a promise of its namespace.
func (v *vm) eval(ctx context.Context, text, file string, flags uint64) (uint64, error) {
	at, err := v.put(ctx, text)
	if err != nil {
		return 0, err
	}
	name, err := v.put(ctx, file)
	if err != nil {
		return 0, err
	}
	value, err := v.call(ctx, "qjs_eval", at, uint64(len(text)), name, flags)
	if value, err = v.checked(ctx, value, err); err != nil {
		return 0, err
	}
	return value, errors.Join(v.release(ctx, at), v.release(ctx, name))
}

// invoke calls a function with values, which it frees.
func (v *vm) invoke(ctx context.Context, function, this uint64, args ...uint64) (uint64, error) {
	argv, err := v.call(ctx, "wasm_malloc", uint64(4*len(args)+4))
	if err != nil {
		return 0, err
	}
	if argv == 0 {
		return 0, errMemory
	}
	for i, arg := range args {
		v.memory.WriteUint32Le(uint32(argv)+uint32(4*i), uint32(arg))
	}
	value, err := v.call(ctx, "qjs_call", function, this, uint64(len(args)), argv)
	if value, err = v.checked(ctx, value, err); err != nil {
		return 0, err
	}
	for _, arg := range args {
		if err := v.free(ctx, arg); err != nil {
			return 0, err
		}
	}
	return value, v.release(ctx, argv)
}

// jobs runs the pending jobs of promises.
func (v *vm) jobs(ctx context.Context) error {
	for {
		pending, err := v.call(ctx, "qjs_is_job_pending")
		if err != nil || pending == 0 {
			return err
		}
		if _, err := v.call(ctx, "qjs_execute_pending_job"); err != nil {
			return err
		}
	}
}
