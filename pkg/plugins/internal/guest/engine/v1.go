package engine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// V1 is the ABI rtr_v1, version 1. The guest owns a buffer for batches, and answers with an address
// and a length. Each batch and each answer is copied once.
type V1 struct{}

var _ Protocol = V1{}

// Stack implements [Protocol].
func (V1) Stack() int32 { return 0 }

// CheckImports implements [Protocol].
func (V1) CheckImports(of *host.Host, imports []meter.Import) error { return of.CheckImports(imports) }

// Provide implements [Protocol].
func (V1) Provide(ctx context.Context, of *host.Host, runtime wazero.Runtime) error {
	return of.Provide(ctx, runtime)
}

// v1Exports are the functions that a guest must export. rtr_init is optional.
func v1Exports() map[string]string {
	return map[string]string{
		"rtr_abi_version": "() → (i32)",
		"rtr_alloc":       "(i32) → (i32)",
		"rtr_handle":      "(i32, i32) → (i64)",
		"rtr_init":        "(i32, i32) → (i32)",
	}
}

// Check implements [Protocol].
func (V1) Check(module wazero.CompiledModule) error {
	var missing []string
	exports := module.ExportedFunctions()
	for _, name := range []string{"rtr_abi_version", "rtr_alloc", "rtr_handle", "rtr_init"} {
		want, f := v1Exports()[name], exports[name]
		switch {
		case f == nil && name != "rtr_init":
			missing = append(missing, name+" "+want)
		case f != nil && host.Signature(f) != want:
			missing = append(missing, fmt.Sprintf("%s %s (it is %s)", name, want, host.Signature(f)))
		}
	}
	if module.ExportedMemories()["memory"] == nil {
		missing = append(missing, "memory")
	}
	if missing == nil {
		return nil
	}
	err := fmt.Errorf("it does not export %s", strings.Join(missing, ", "))
	if isProgram(module) {
		err = fmt.Errorf("%w%s", err, notLibrary)
	}
	return err
}

// notLibrary is the hint for a program that is not a library.
const notLibrary = ": it is a program, not a library: build it with -buildmode=c-shared (Go), -mexec-model=reactor (C), or as a cdylib (Rust)"

// Hint implements [Protocol].
func (V1) Hint(module wazero.CompiledModule, err error) error {
	if isProgram(module) {
		return fmt.Errorf("%w%s", err, notLibrary)
	}
	return err
}

// isProgram reports whether the module is a program that runs once. Most languages initialise
// nothing for the exports of such a program, so these trap.
func isProgram(module wazero.CompiledModule) bool {
	exports := module.ExportedFunctions()
	return exports["_start"] != nil && exports["_initialize"] == nil
}

// v1Session calls the exports of one instance.
type v1Session struct {
	in            *Instance
	memory        api.Memory
	alloc, answer api.Function // a look-up by name costs more than a call
	stack         [2]uint64    // arguments and results

	buffer, capacity uint32 // the guest's input buffer
	sequence         uint64 // the number of deltas so far
}

// Attach implements [Protocol].
func (V1) Attach(ctx context.Context, in *Instance) (Session, error) {
	m := in.module
	s := &v1Session{
		in: in, memory: m.Memory(),
		alloc: m.ExportedFunction("rtr_alloc"), answer: m.ExportedFunction("rtr_handle"),
	}
	version, err := s.call(ctx, m.ExportedFunction("rtr_abi_version"))
	if err != nil {
		return nil, fmt.Errorf("rtr_abi_version: %w", err)
	}
	if uint32(version) != abi.Version {
		return nil, fmt.Errorf("it speaks version %d of the ABI rtr_v1, the router speaks %d: build it with a matching SDK", uint32(version), abi.Version)
	}
	if init := m.ExportedFunction("rtr_init"); init != nil {
		if err := s.init(ctx, init); err != nil {
			return nil, fmt.Errorf("rtr_init: %w", err)
		}
	}
	return s, nil
}

// init passes the configuration to the guest.
func (s *v1Session) init(ctx context.Context, init api.Function) error {
	conf := s.in.engine.Config
	buf, err := s.reserve(ctx, len(conf))
	if err != nil {
		return err
	}
	copy(buf, conf)
	ret, err := s.call(ctx, init, uint64(s.buffer), uint64(len(conf)))
	if err != nil {
		return err
	}
	if code := uint32(ret); code != 0 {
		return errors.New(abi.InitMessage(s.memory, code, &s.in.engine.Limits))
	}
	return nil
}

// Handle implements [Session].
func (s *v1Session) Handle(ctx context.Context, batch []*event.Delta, size int) ([]plugins.Result, error) {
	buf, err := s.reserve(ctx, size)
	if err != nil {
		return nil, err
	}
	n := abi.EncodeBatch(buf, batch, s.sequence)
	s.sequence += uint64(len(batch))
	ret, err := s.call(ctx, s.answer, uint64(s.buffer), uint64(n))
	if err != nil {
		return nil, err
	}
	if ret == 0 {
		return nil, nil // the answer to most batches: all deltas are ok
	}
	return abi.DecodeAnswer(s.memory, ret, len(batch), &s.in.engine.Limits)
}

// Skip implements [Skipper].
func (s *v1Session) Skip(deltas int) { s.sequence += uint64(deltas) }

// reserve returns a view of n bytes of the guest's input buffer. The view is valid until the guest
// runs again.
func (s *v1Session) reserve(ctx context.Context, n int) ([]byte, error) {
	if uint32(n) > s.capacity {
		// the next power of two, so that the buffer grows seldom
		size := uint64(1) << bits.Len(uint(max(n, 4096)-1))
		ptr, err := s.call(ctx, s.alloc, size)
		switch {
		case err != nil:
			return nil, fmt.Errorf("rtr_alloc(%d): %w", size, err)
		case uint32(ptr) == 0:
			return nil, fmt.Errorf("rtr_alloc(%d): the guest is out of memory", size)
		case ptr%8 != 0:
			return nil, fmt.Errorf("rtr_alloc(%d): its address is not divisible by 8", size)
		}
		s.buffer, s.capacity = uint32(ptr), uint32(size)
	}
	buf, ok := s.memory.Read(s.buffer, s.capacity)
	if !ok {
		return nil, fmt.Errorf("rtr_alloc(%d): the buffer is not within the guest's memory", s.capacity)
	}
	return buf, nil
}

// call calls a function with at most two parameters and one result.
func (s *v1Session) call(ctx context.Context, f api.Function, params ...uint64) (uint64, error) {
	copy(s.stack[:], params)
	if err := f.CallWithStack(ctx, s.stack[:]); err != nil {
		return 0, s.in.Explain(err)
	}
	return s.stack[0], nil
}
