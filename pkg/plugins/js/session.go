package js

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

//go:embed prelude.js
var prelude string

// session passes deltas to the handler in one instance. It implements [engine.Session] and
// [engine.Reviver].
type session struct {
	vm      *vm
	within  *vm // of the functions of the host
	code    code
	limits  *abi.Limits
	fresh   bool
	changed bool   // since the start or the last revival
	large   string // largeIntegers

	// Values of the engine that last as long as the instance.
	undefined, handle, settle uint64

	image        []byte // of the memory after the start
	stackPointer uint64
	pointer      api.MutableGlobal
}

var _ engine.Reviver = (*session)(nil)

// Attach implements [engine.Protocol]: it starts the engine, and evaluates the code of the handler.
func (p protocol) Attach(ctx context.Context, in *engine.Instance) (engine.Session, error) {
	settings := in.Settings()
	s := &session{vm: newVM(in.Module()), code: p.code, limits: &settings.Limits, fresh: p.fresh, large: p.large}
	s.vm.explain = in.Explain
	s.within = newVM(in.Module())
	ctx = context.WithValue(ctx, withinKey{}, s.within)
	s.pointer, _ = in.Module().ExportedGlobal("__stack_pointer").(api.MutableGlobal)
	if s.pointer == nil {
		return nil, errors.New("the engine has no __stack_pointer")
	}
	err := s.start(ctx, settings.Config)
	var t *thrown
	if errors.As(err, &t) {
		err = errors.New(s.code.describe(t, int(s.limits.Message)))
	}
	if err != nil {
		return nil, err
	}
	memory, _ := s.vm.memory.Read(0, s.vm.memory.Size())
	s.image, s.stackPointer = append([]byte{}, memory...), s.pointer.Get()
	return s, nil
}

// start prepares the engine for deltas.
func (s *session) start(ctx context.Context, config string) error {
	v := s.vm
	if failed, err := v.call(ctx, "qjs_init"); err != nil || uint32(failed) != 0 {
		return errors.Join(err, fmt.Errorf("the engine cannot start (%d)", uint32(failed)))
	}
	// The instance is replaced when it uses three quarters of its memory.
	if _, err := v.call(ctx, "qjs_set_memory_limit", uint64(s.limits.Memory)/4*3); err != nil {
		return err
	}
	if _, err := v.call(ctx, "qjs_set_max_stack_size", engineStack); err != nil {
		return err
	}
	var err error
	if s.undefined, err = v.call(ctx, "qjs_get_undefined"); err != nil {
		return err
	}
	environment, err := s.prepare(ctx, config)
	if err != nil {
		return fmt.Errorf("the environment of the handler: %w", err)
	}
	if s.handle, err = v.property(ctx, environment, "handle"); err != nil {
		return err
	}
	if s.settle, err = v.property(ctx, environment, "settle"); err != nil {
		return err
	}
	setup, err := v.property(ctx, environment, "setup")
	if err != nil {
		return err
	}
	module, err := s.evaluate(ctx)
	if err != nil {
		return err
	}
	_, err = v.invoke(ctx, setup, s.undefined, module)
	return err
}

// prepare evaluates the prelude and returns the functions that the host calls.
func (s *session) prepare(ctx context.Context, config string) (uint64, error) {
	v := s.vm
	environment, err := v.eval(ctx, strings.TrimSpace(prelude), "deltarouter.js", 0)
	if err != nil {
		return 0, err
	}
	var args []uint64
	for _, name := range hostNames() {
		f, err := v.function(ctx, name)
		if err != nil {
			return 0, err
		}
		args = append(args, f)
	}
	for _, setting := range []string{config, s.large} {
		text, err := v.newString(ctx, setting)
		if err != nil {
			return 0, err
		}
		args = append(args, text)
	}
	return v.invoke(ctx, environment, s.undefined, args...)
}

// evaluate evaluates the code of the handler and returns the namespace of its module.
func (s *session) evaluate(ctx context.Context) (uint64, error) {
	v := s.vm
	promise, err := v.eval(ctx, s.code.text, s.code.file, 1)
	if err != nil {
		return 0, err
	}
	if err := v.jobs(ctx); err != nil {
		return 0, err
	}
	const fulfilled, rejected = 1, 2
	state, err := v.call(ctx, "qjs_promise_state", promise)
	if err != nil {
		return 0, err
	}
	if state != fulfilled && state != rejected {
		return 0, errors.New("its top-level await never ends")
	}
	result, err := v.call(ctx, "qjs_promise_result", promise)
	if err != nil {
		return 0, err
	}
	if state == rejected {
		return 0, v.describe(ctx, result)
	}
	return result, nil
}

// Revive implements [engine.Reviver]. What the memory has grown by stays unused.
func (s *session) Revive() bool {
	s.pointer.Set(s.stackPointer)
	s.changed = false
	return s.vm.memory.Write(0, s.image)
}

// Handle implements [engine.Session].
func (s *session) Handle(ctx context.Context, batch []*event.Delta, _ int) ([]plugins.Result, error) {
	ctx = context.WithValue(ctx, withinKey{}, s.within)
	services, _ := host.ServicesOf(ctx)
	results := make([]plugins.Result, len(batch))
	size := 0
	for i, d := range batch {
		if s.fresh && s.changed && !s.Revive() {
			return nil, errors.New("its state cannot be restored")
		}
		s.changed = true
		answer, err := s.pass(ctx, d)
		if err != nil {
			return nil, err
		}
		if size += len(answer); size > int(s.limits.Output) {
			return nil, fmt.Errorf("%w: %d bytes, at most %d (limits.output)", abi.ErrTooMuch, size, s.limits.Output)
		}
		if results[i], err = s.result(answer); err != nil {
			return nil, err
		}
		services.Settle(&results[i])
	}
	return results, nil
}

// pass calls the handler with a delta and returns its answer: empty, or JSON.
func (s *session) pass(ctx context.Context, d *event.Delta) (string, error) {
	v := s.vm
	var args []uint64
	for _, text := range []string{abi.Meta(d), objectText(d.Object()), oldText(d)} {
		value, err := v.newString(ctx, text)
		if err != nil {
			return "", err
		}
		args = append(args, value)
	}
	answer, err := s.ask(ctx, s.handle, args...)
	if err == nil {
		err = v.jobs(ctx)
	}
	if err == nil && answer == "async" {
		answer, err = s.ask(ctx, s.settle)
	}
	var t *thrown
	if errors.As(err, &t) { // in the prelude: the handler has changed what it needs, or the memory or stack is full
		err = errors.New(s.code.describe(t, int(s.limits.Message)))
	}
	return answer, err
}

// ask calls a function that returns text.
func (s *session) ask(ctx context.Context, f uint64, args ...uint64) (string, error) {
	value, err := s.vm.invoke(ctx, f, s.undefined, args...)
	if err != nil {
		return "", err
	}
	text, err := s.vm.text(ctx, value)
	if err != nil {
		return "", err
	}
	return text, s.vm.free(ctx, value)
}

// result reads the answer of a handler: {"v": verdict, "e": events}, or {"v", "m": message, "a":
// milliseconds, "s": stack}.
func (s *session) result(answer string) (plugins.Result, error) {
	if answer == "" {
		return plugins.Result{}, nil
	}
	if err := rawjson.Check(answer); err != nil {
		return plugins.Result{}, fmt.Errorf("%w: %w", abi.ErrMalformed, err)
	}
	var verdict struct {
		V int8
		M string
		S string
		A float64
		E []json.RawMessage
	}
	if err := json.Unmarshal([]byte(answer), &verdict); err != nil {
		return plugins.Result{}, fmt.Errorf("%w: it is not an answer", abi.ErrMalformed)
	}
	switch plugins.Verdict(verdict.V) {
	case plugins.OK:
		return s.events(verdict.E), nil
	case plugins.Drop:
		return plugins.Result{Verdict: plugins.Drop}, nil
	case plugins.Retry:
		after := time.Duration(min(max(verdict.A, 0), float64(abi.LongestRetry/time.Millisecond))) * time.Millisecond
		return plugins.Result{Verdict: plugins.Retry, Err: plugins.Postpone(errors.New(printable.Text(verdict.M, int(s.limits.Message))), after)}, nil
	case plugins.Fail:
	}
	t := &thrown{message: verdict.M, stack: verdict.S}
	return plugins.Result{Verdict: plugins.Fail, Err: errors.New(s.code.describe(t, int(s.limits.Message)))}, nil
}

func (s *session) events(texts []json.RawMessage) plugins.Result {
	if len(texts) > s.limits.Events {
		return abi.Reject(fmt.Errorf("%d events for one delta, at most %d (limits.events)", len(texts), s.limits.Events))
	}
	events := make([]plugins.Emit, len(texts))
	for i, text := range texts {
		e, err := abi.ParseEnvelope(s.limits, string(text))
		if err != nil {
			return abi.Reject(fmt.Errorf("event %d: %w", i, err))
		}
		events[i] = e
	}
	return plugins.Result{Events: events}
}

// oldText returns the state before the change as JSON, or nothing if the delta has only one state.
func oldText(d *event.Delta) string {
	if d.New == nil || d.Old == nil {
		return ""
	}
	return objectText(d.Old)
}

func objectText(o *event.Object) string { return string(o.JSON()) }
