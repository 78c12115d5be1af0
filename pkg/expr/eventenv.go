package expr

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// The variables of an [EventProgram], in the place of those that other expressions have.
const (
	nameEvent   = "event"
	nameSecrets = "secrets"
)

// EventProgram is an expression about an event, as a sink has them: it sees `event`, with the members that the event has as a
// structured CloudEvent, `secrets`, and the libraries; there is no object and nothing to look up. It is immutable and safe for concurrent
// use.
type EventProgram struct{ program *Program }

// CompileEvent compiles an expression about events, whose result may be of any type. The error is that of [Env.Compile].
func CompileEvent(text string) (*EventProgram, error) {
	base, err := cel.NewEnv(append(libraries(),
		cel.Variable(nameEvent, cel.DynType), cel.Variable(nameSecrets, cel.MapType(cel.StringType, cel.StringType)))...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	env := &Env{
		evaluations: sync.Pool{New: func() any { return new(evaluation) }},
		types:       newTypeSet(base.CELTypeProvider()),
		shapes:      make(map[string]*shape),
		cluster:     types.String(""),
		resolutionError: resolutionError(
			interpreter.NewAttributeFactory(base.Container, base.CELTypeAdapter(), base.CELTypeProvider())),
	}
	s := &scope{env: env, cel: base, aboutEvents: true}
	p, err := s.compile(text, Value, "", nil)
	if err != nil {
		return nil, err
	}
	return &EventProgram{p}, nil
}

// aboutEvent is what the evaluation of an EventProgram has.
type aboutEvent struct {
	text    string // the event as JSON
	secrets map[string]string
}

// resolve gives the variables their values.
func (a *aboutEvent) resolve(name string, m *meter) (any, bool) {
	switch name {
	case nameEvent:
		return m.value(rawjson.Value(a.text)), true
	case nameSecrets:
		return types.NewStringStringMap(types.DefaultTypeAdapter, a.secrets), true
	}
	return nil, false
}

// Eval evaluates the expression and returns the result as compact JSON, which is copied from the event where the expression hands it
// on unchanged; null for an absent optional. Errors are as with [Program.Match], and quote neither the event nor secrets.
func (p *EventProgram) Eval(ctx context.Context, e *event.Event, secrets map[string]string) ([]byte, error) {
	in := p.program.start(Input{})
	defer in.release()
	in.event = &aboutEvent{string(e.AppendJSON(nil)), secrets}
	v, err := in.run(ctx)
	if err != nil {
		return nil, err
	}
	return p.program.json(v)
}

// json writes a result.
func (p *Program) json(v ref.Val) ([]byte, error) {
	w := writer{room: maxOutput}
	if err := w.value(shown(unwrap(v))); err != nil {
		return nil, p.evalError(err)
	}
	return w.take(), nil
}
