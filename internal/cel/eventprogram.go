package cel

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// EventProgram is an expression about an event, used by sinks. It has `event`, with the members of
// the event as a structured CloudEvent, `secrets`, and the libraries; it has no object and no
// look-ups. It is immutable and safe for concurrent use.
type EventProgram struct{ program *Program }

// CompileEvent compiles an expression about events, whose result may be of any type. The error is
// that of [Env.Compile].
func CompileEvent(text string) (*EventProgram, error) {
	base, err := cel.NewEnv(append(check.Libraries(),
		cel.Variable(syntax.VarEvent, cel.DynType), cel.Variable(syntax.VarSecrets, cel.MapType(cel.StringType, cel.StringType)))...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	env := newEnv(base, check.NewForEvents(base), "")
	p, err := env.compile(env.checker.Scope(""), text, check.Value, nil, "", nil)
	if err != nil {
		return nil, err
	}
	return &EventProgram{p}, nil
}

// aboutEvent has the values of the variables of an EventProgram.
type aboutEvent struct {
	text    string // the event as JSON
	secrets map[string]string
}

// resolve returns the values of the variables.
func (a *aboutEvent) resolve(name string, m *jsonval.Meter) (any, bool) {
	switch name {
	case syntax.VarEvent:
		return m.Open(a.text, jsonval.EventData()), true
	case syntax.VarSecrets:
		return types.NewStringStringMap(types.DefaultTypeAdapter, a.secrets), true
	}
	return nil, false
}

// Eval evaluates the expression and returns the result as compact JSON; unchanged parts of the
// event are copied. The result is null for an absent optional. Errors are as with [Program.Match],
// and quote neither the event nor secrets.
func (p *EventProgram) Eval(ctx context.Context, e *event.Event, secrets map[string]string) ([]byte, error) {
	in := p.program.start(Input{})
	defer in.release()
	in.event = &aboutEvent{string(e.AppendJSON(nil)), secrets}
	v, err := in.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	return p.program.json(v)
}

// EventRead is a read of a member of the event that fails if the event does not have it.
type EventRead = check.EventRead

// Reads returns the reads of the event that fail if it does not have the member.
func (p *EventProgram) Reads() []EventRead { return check.EventReads(p.program.linked.Texts.Main()) }
