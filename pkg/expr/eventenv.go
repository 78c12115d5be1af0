package expr

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// The variables of an [EventProgram], in the place of those that other expressions have. `event` of a route that another feeds is not as
// there: a type of its own says what it has, see records.
const (
	nameEvent   = "event"
	nameSecrets = "secrets"
)

// event is `event` of a route that another feeds; null for nil. Its data stays text, as objects do, and is read at the expense of the meter.
func (m *meter) event(e *event.Event) ref.Val {
	if e == nil {
		return types.NullValue
	}
	data := ref.Val(types.NullValue)
	if text := rawjson.Trim(unsafe.String(unsafe.SliceData(e.Data), len(e.Data))); text != "" { // nobody modifies it
		data = m.open(string(text))
	}
	return newRecord(map[string]ref.Val{
		"id": types.String(e.ID), "type": types.String(e.Type), "source": types.String(e.Source), "subject": types.String(e.Subject),
		"route": types.String(e.Route), "time": types.Timestamp{Time: e.Time}, "data": data,
	})
}

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
