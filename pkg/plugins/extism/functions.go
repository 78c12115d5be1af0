package extism

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// The modules from which guests import functions.
const (
	envModule  = "extism:host/env"
	userModule = "extism:host/user" // of functions that a host adds
)

// function is a function that guests may import. Arguments and the result are on the stack.
type function struct {
	module, name   string
	params, result string // one letter per value: i is an i32, I an i64
	call           func(ctx context.Context, s *session, stack []uint64)
}

// functions returns the functions that guests may import.
//
// Source: https://github.com/extism/extism/blob/v1.13.0/kernel/src/lib.rs for those about memory,
// https://github.com/extism/go-sdk/blob/v1.7.1/host.go for the others.
func functions() []function {
	return append([]function{
		{envModule, "alloc", "I", "I", alloc},
		{envModule, "free", "I", "", free},
		{envModule, "length", "I", "I", length},
		{envModule, "length_unsafe", "I", "I", length},
		{envModule, "load_u8", "I", "i", load8},
		{envModule, "load_u64", "I", "I", load64},
		{envModule, "store_u8", "Ii", "", store8},
		{envModule, "store_u64", "II", "", store64},
		{envModule, "memory_bytes", "", "I", memoryBytes},
		{envModule, "reset", "", "", reset},
		{envModule, "input_set", "II", "", inputSet},
		{envModule, "input_length", "", "I", inputLength},
		{envModule, "input_offset", "", "I", inputOffset},
		{envModule, "input_load_u8", "I", "i", inputLoad8},
		{envModule, "input_load_u64", "I", "I", inputLoad64},
		{envModule, "output_set", "II", "", outputSet},
		{envModule, "output_length", "", "I", outputLength},
		{envModule, "output_offset", "", "I", outputOffset},
		{envModule, "error_set", "I", "", errorSet},
		{envModule, "error_get", "", "I", errorGet},
	}, services()...)
}

func types(letters string) []api.ValueType {
	all := make([]api.ValueType, len(letters))
	for i, letter := range letters {
		all[i] = api.ValueTypeI32
		if letter == 'I' {
			all[i] = api.ValueTypeI64
		}
	}
	return all
}

// signatures returns the types of the functions by module and name.
func signatures() map[[2]string]string {
	all := make(map[[2]string]string)
	for _, f := range functions() {
		all[[2]string{f.module, f.name}] = host.SignatureOf(types(f.params), types(f.result))
	}
	return all
}

// provide adds the functions to a runtime.
func provide(ctx context.Context, runtime wazero.Runtime) error {
	for _, module := range []string{envModule, userModule} {
		b := runtime.NewHostModuleBuilder(module)
		for _, f := range functions() {
			if f.module == module {
				b.NewFunctionBuilder().WithGoModuleFunction(imported(f.call), types(f.params), types(f.result)).Export(f.name)
			}
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
	}
	return nil
}

// imported implements [api.GoModuleFunction].
type imported func(context.Context, *session, []uint64)

var errNoSession = errors.New("the guest runs without a session")

// Call implements [api.GoModuleFunction].
func (f imported) Call(ctx context.Context, _ api.Module, stack []uint64) {
	s := sessionOf(ctx)
	if s == nil {
		panic(errNoSession) //nolint:forbidigo // how wazero unwinds a guest
	}
	s.services.Called(0)
	f(ctx, s, stack)
}

func alloc(_ context.Context, s *session, stack []uint64) {
	stack[0] = s.checked(s.alloc(stack[0]))
}

func free(_ context.Context, s *session, stack []uint64) { s.memory.free(stack[0]) }

func length(_ context.Context, s *session, stack []uint64) { stack[0] = s.memory.length(stack[0]) }

func load8(_ context.Context, s *session, stack []uint64) {
	stack[0] = uint64(s.at(s.memory.read, "load_u8", stack[0], 1)[0])
}

func load64(_ context.Context, s *session, stack []uint64) {
	stack[0] = binary.LittleEndian.Uint64(s.at(s.memory.read, "load_u64", stack[0], 8))
}

func store8(_ context.Context, s *session, stack []uint64) {
	s.at(s.memory.blocks, "store_u8", stack[0], 1)[0] = byte(stack[1])
}

func store64(_ context.Context, s *session, stack []uint64) {
	binary.LittleEndian.PutUint64(s.at(s.memory.blocks, "store_u64", stack[0], 8), stack[1])
}

// at returns a part of the memory, or ends the guest.
func (s *session) at(of func(at, size uint64) ([]byte, bool), name string, at, size uint64) []byte {
	bytes, ok := of(at, size)
	if !ok {
		s.end(fmt.Errorf("%s: the address %#x is in no block", name, at))
	}
	return bytes
}

func memoryBytes(_ context.Context, s *session, stack []uint64) {
	stack[0] = uint64(len(s.memory.bytes))
}

func reset(_ context.Context, s *session, _ []uint64) {
	s.services.Called(int(s.memory.top))
	s.reset()
}

func inputSet(_ context.Context, s *session, stack []uint64) {
	if _, ok := s.memory.blocks(stack[0], stack[1]); ok {
		s.input = span{stack[0], stack[1]}
	}
}

func inputLength(_ context.Context, s *session, stack []uint64) { stack[0] = s.input.size }

func inputOffset(_ context.Context, s *session, stack []uint64) { stack[0] = s.input.at }

func inputLoad8(_ context.Context, s *session, stack []uint64) {
	stack[0] = s.inputAt(stack[0], 1)
}

func inputLoad64(_ context.Context, s *session, stack []uint64) {
	stack[0] = s.inputAt(stack[0], 8)
}

// inputAt returns size bytes of the input as a number. Bytes behind its end are zero.
func (s *session) inputAt(offset, size uint64) uint64 {
	if offset >= s.input.size {
		return 0
	}
	var word [8]byte
	bytes, _ := s.memory.read(s.input.at+offset, min(size, s.input.size-offset))
	copy(word[:], bytes)
	return binary.LittleEndian.Uint64(word[:])
}

func outputSet(_ context.Context, s *session, stack []uint64) {
	s.output = span{stack[0], stack[1]}
}

func outputLength(_ context.Context, s *session, stack []uint64) { stack[0] = s.output.size }

func outputOffset(_ context.Context, s *session, stack []uint64) { stack[0] = s.output.at }

// errorSet keeps the message at once, because some guests free its block before they return.
func errorSet(_ context.Context, s *session, stack []uint64) {
	message, _ := s.memory.read(stack[0], min(s.memory.length(stack[0]), uint64(s.limits.Message)))
	s.services.Called(len(message))
	s.failed, s.failure = stack[0], string(message)
}

func errorGet(_ context.Context, s *session, stack []uint64) { stack[0] = s.failed }
