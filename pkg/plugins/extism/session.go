package extism

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// session passes deltas to one instance, and is the state of its host functions. It implements
// [engine.Session] and [engine.Holder].
type session struct {
	in       *engine.Instance // nil: it starts
	function api.Function
	limits   *abi.Limits
	config   map[string]string
	debug    bool // debug lines are logged
	services host.Services
	delta    []byte // JSON

	memory        memory
	input, output span
	failed        uint64 // the block of the message of error_set, or 0
	failure       string // the message
	status        int32  // of the last response; 0: there is none
	headers       map[string]string
	ended         error // with which a host function ended the guest
}

// span is a part of the memory.
type span struct{ at, size uint64 }

var _ engine.Holder = (*session)(nil)

type sessionKey struct{}

// sessionOf returns the session of the guest that calls a host function.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// within returns the context for calls of the guest.
func (s *session) within(ctx context.Context) context.Context {
	s.services, _ = host.ServicesOf(ctx)
	return context.WithValue(ctx, sessionKey{}, s)
}

// Held implements [engine.Holder].
func (s *session) Held() uint64 { return uint64(len(s.memory.bytes)) }

// end ends the guest in a host function.
func (s *session) end(err error) {
	s.ended = err
	panic(err) //nolint:forbidigo // how wazero unwinds a guest
}

// alloc returns the address of a new block, whose bytes cost fuel.
func (s *session) alloc(size uint64) (uint64, error) {
	s.services.Called(int(min(size, s.memory.most)))
	return s.memory.alloc(size)
}

// reset removes everything of a delta.
func (s *session) reset() {
	s.memory.reset()
	s.input, s.output, s.failed, s.failure = span{}, span{}, 0, ""
}

// Handle implements [engine.Session].
func (s *session) Handle(ctx context.Context, batch []*event.Delta, _ int) ([]plugins.Result, error) {
	ctx = s.within(ctx)
	s.debug = s.in.Settings().Env.Log.Enabled(ctx, slog.LevelDebug)
	results := make([]plugins.Result, len(batch))
	volume := uint64(0)
	for i, d := range batch {
		var err error
		if results[i], err = s.pass(ctx, d); err != nil {
			return nil, err
		}
		s.services.Settle(&results[i])
		if volume += s.output.size; volume > uint64(s.limits.Output) {
			return nil, fmt.Errorf("%w: %d bytes, at most %d (limits.output)", abi.ErrTooMuch, volume, s.limits.Output)
		}
	}
	return results, nil
}

// pass calls the function of the guest with a delta.
func (s *session) pass(ctx context.Context, d *event.Delta) (plugins.Result, error) {
	s.reset()
	s.status, s.headers, s.ended = 0, nil, nil
	s.delta = abi.AppendDelta(s.delta[:0], d)
	at, err := s.memory.put(s.delta)
	if err != nil {
		return abi.Reject(fmt.Errorf("the delta has %d bytes: raise limits.memory, of which a quarter is for the deltas and answers", len(s.delta))), nil
	}
	s.input = span{at, uint64(len(s.delta))}
	if cap(s.delta) > keptMemory {
		s.delta = nil
	}
	var stack [1]uint64
	if err := s.function.CallWithStack(ctx, stack[:]); err != nil {
		return plugins.Result{}, s.explain(err)
	}
	return s.answer(uint32(stack[0]))
}

// explain makes the error of a call readable.
func (s *session) explain(err error) error {
	if s.ended != nil {
		return errors.New(printable.Text(s.ended.Error(), int(s.limits.Message)))
	}
	return s.in.Explain(err)
}

// answer reads the answer of the guest to a delta. code is what its function returned.
func (s *session) answer(code uint32) (plugins.Result, error) {
	if len(s.function.Definition().ResultTypes()) == 0 {
		code = 0
	}
	if s.failed != 0 || code != 0 {
		message := printable.Text(s.failure, int(s.limits.Message))
		if message == "" {
			message = fmt.Sprintf("the guest returned %d, without a message", int32(code))
		}
		s.output = span{} // it does not count
		return plugins.Result{Verdict: plugins.Fail, Err: errors.New(message)}, nil
	}
	if s.output.size == 0 || s.output.size > uint64(s.limits.Output) {
		return plugins.Result{}, nil // Handle refuses the latter
	}
	text, ok := s.memory.read(s.output.at, s.output.size)
	if !ok {
		return plugins.Result{}, fmt.Errorf("%w: its %d bytes at %#x are in no block", abi.ErrMalformed, s.output.size, s.output.at)
	}
	return abi.ParseAnswer(s.limits, string(text)), nil
}
