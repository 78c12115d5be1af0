package stdio

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// protocol is how the host speaks with commands. It implements [engine.Protocol].
type protocol struct{}

var _ engine.Protocol = protocol{}

// Stack implements [engine.Protocol].
func (protocol) Stack() int32 { return 0 }

// useWASM is the remedy for a module with an interface of its own.
const useWASM = "a command speaks by stdin and stdout only: use the kind wasm for a module that is built with an SDK of the router"

// CheckImports implements [engine.Protocol].
func (protocol) CheckImports(_ *host.Host, imports []meter.Import) error {
	for _, im := range imports {
		if im.Module == "rtr_v1" {
			return fmt.Errorf("it imports functions of the router: %s", useWASM)
		}
	}
	return host.CheckImports(imports, nil)
}

// Provide implements [engine.Protocol].
func (protocol) Provide(context.Context, *host.Host, wazero.Runtime) error { return nil }

// Check implements [engine.Protocol].
func (protocol) Check(module wazero.CompiledModule) error {
	exports := module.ExportedFunctions()
	start := exports["_start"]
	switch {
	case start == nil && exports["rtr_handle"] != nil:
		return fmt.Errorf("it is a library for the router, not a command: %s", useWASM)
	case start == nil || host.Signature(start) != "() → ()":
		return errors.New("it does not export _start () → (): it is no command; build it with a main function, for WASI preview 1")
	case module.ExportedMemories()["memory"] == nil:
		return errors.New("it does not export memory")
	}
	return nil
}

// Hint implements [engine.Protocol].
func (protocol) Hint(_ wazero.CompiledModule, err error) error { return err }

// Attach implements [engine.Protocol]: it starts the command, and returns when the command asks for
// its first delta.
func (protocol) Attach(ctx context.Context, in *engine.Instance) (engine.Session, error) {
	s := newSession(in) //nolint:contextcheck // resume passes it
	if s.resume(ctx) {
		return s, nil
	}
	if err := s.failure(); err != nil {
		return nil, err
	}
	return nil, errors.New("the guest exited with code 0 before it read stdin: a command must read one delta per line until the end of stdin")
}
