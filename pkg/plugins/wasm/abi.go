package wasm

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// abi is a way to speak with guests. There is one so far ([v1]); another is another implementation, the engine and the pool
// do not change with it.
type abi interface {
	// provide gives the runtime the host functions that guests may import.
	provide(ctx context.Context, e *engine) error
	// check says what a module lacks to be spoken to.
	check(module wazero.CompiledModule) error
	// attach makes a fresh instance ready for batches.
	attach(ctx context.Context, in *instance) (session, error)
}

// session is the talk with one instance. It is used by one goroutine at a time.
type session interface {
	// handle gives a batch, which takes at most size bytes, to the guest and returns one result per delta, or none at all if every delta is ok. After an error other than errTooMuch the instance is in
	// no known state.
	handle(ctx context.Context, batch []*event.Delta, size int) ([]plugins.Result, error)
}

// errTooMuch is wrapped by the error of a batch whose answer is longer than it may be; half the batch may pass.
var errTooMuch = errors.New("the answer is too long")
