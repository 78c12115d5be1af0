package expr

import (
	"context"
	"math"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/pkg/event"
)

var (
	_ cel.Activation = (*evaluation)(nil)
	_ ref.Val        = (*evaluation)(nil)
)

func (p *Program) start(in Input) *evaluation {
	e, _ := p.env.evaluations.Get().(*evaluation)
	if p.others != nil && in.Delta != nil && p.others[in.Delta.Source] != nil {
		p = p.others[in.Delta.Source]
	}
	*e = evaluation{program: p, delta: in.Delta, cache: in.Cache, budget: in.Budget, group: in.Group, meter: meter{left: p.limit * workPerCost}}
	if in.Delta != nil {
		e.of = in.Delta.Object()
	}
	return e
}

// release hands the evaluation back. Its results must have been copied out: they read through its meter.
func (in *evaluation) release() {
	pool := &in.program.env.evaluations
	*in = evaluation{} // nothing of the objects stays reachable
	pool.Put(in)
}

// run evaluates. Only a program with loops can last long enough to be worth a look at the context.
func (in *evaluation) run(ctx context.Context) (ref.Val, error) {
	if in.program.loops {
		in.done = ctx.Done()
	}
	v, err := in.runToEnd()
	if in.interrupted {
		cause := context.Cause(ctx)
		return nil, &EvalError{Reason: "interrupted: " + cause.Error(), class: cause}
	}
	return v, err
}

// runToEnd evaluates without a context.
func (in *evaluation) runToEnd() (ref.Val, error) {
	if in.of == nil && in.event == nil {
		return nil, &EvalError{Reason: "there is no object to evaluate"}
	}
	if err := in.budget.overdrawn(); err != nil {
		return nil, err
	}
	v, _, err := in.program.program.Eval(in)
	in.cost = in.program.limit - max(0, in.meter.left)/workPerCost
	in.budget.spend(in.cost)
	if err != nil {
		return nil, in.program.evalError(err)
	}
	in.meter.left = math.MaxInt // whoever reads the result is outside of what turns the meter's panic into an error
	return v, nil
}

// found is an object of another source, or null for nil.
func (in *evaluation) found(source string, obj *event.Object) ref.Val {
	if obj == nil {
		return types.NullValue
	}
	return in.meter.shaped(string(obj.Raw()), in.program.env.shapes[source])
}

// root is `object` or `oldObject`.
func (in *evaluation) root(obj *event.Object, fields *rootFields) ref.Val {
	fields.shape.root = fields
	if s := in.program.shape; s != nil {
		fields.shape.kind, fields.shape.of, fields.shape.fields = s.kind, s.of, s.fields
	}
	return &mapValue{string(obj.Raw()), &in.meter, &fields.shape}
}

// ResolveName implements cel.Activation.
func (in *evaluation) ResolveName(name string) (any, bool) {
	if in.event != nil {
		return in.event.resolve(name, &in.meter)
	}
	switch name {
	case nameObject:
		if in.object == nil {
			in.object = in.root(in.of, &in.fields)
		}
		return in.object, true
	case nameInput:
		return in, true
	case nameCluster:
		return in.program.env.cluster, true
	}
	if strings.HasPrefix(name, at) {
		return types.NullValue, true // stands for a type
	}
	if in.delta == nil {
		return in.program.source, name == nameSource
	}
	switch name {
	case nameOldObject:
		if in.oldObject == nil {
			in.oldObject = types.NullValue
			if in.delta.Old != nil {
				in.oldObject = in.root(in.delta.Old, &in.oldFields)
			}
		}
		return in.oldObject, true
	case nameOp:
		if int(in.delta.Op) < len(in.program.env.ops) {
			return in.program.env.ops[in.delta.Op], true
		}
	case nameSource:
		return types.String(in.delta.Source), true
	}
	return in.ruled(name)
}

// ruled gives the variables of the rules about time, and the event that another route made of the delta.
func (in *evaluation) ruled(name string) (any, bool) {
	switch d := in.delta; name {
	case nameNow: // as of the delta: all that evaluate it see the same
		return types.Timestamp{Time: d.Seen}, true
	case nameSince:
		if d.Since.IsZero() {
			return types.NullValue, true
		}
		return types.Timestamp{Time: d.Since}, true
	case nameLate:
		return types.Bool(d.Late), true
	case nameRepeat:
		return types.Bool(d.Repeat > 0), true
	case nameSuppressed:
		return types.Int(d.Suppressed), true
	case nameObjects:
		return in.objectsOf(in.group), true
	case nameEvents:
		return in.eventsOf(in.group), true
	case nameEvent:
		if in.fed == nil {
			in.fed = in.meter.event(d.Event)
		}
		return in.fed, true
	}
	return nil, false
}

// objectsOf is `objects`: those of a group of deltas, or the one that there is.
func (in *evaluation) objectsOf(group []*event.Delta) ref.Val {
	if len(group) == 0 {
		group = []*event.Delta{in.delta}
	}
	vals := make([]ref.Val, len(group))
	for i, d := range group {
		vals[i] = in.found(d.Source, d.Object())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// eventsOf is `events`, as objectsOf is `objects`.
func (in *evaluation) eventsOf(group []*event.Delta) ref.Val {
	if len(group) == 0 {
		group = []*event.Delta{in.delta}
	}
	vals := make([]ref.Val, len(group))
	for i, d := range group {
		vals[i] = in.meter.event(d.Event)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// Parent implements cel.Activation.
func (in *evaluation) Parent() cel.Activation { return nil }

// An evaluation is a ref.Val to be an argument of our functions; no expression ever sees it.

func (in *evaluation) ConvertToNative(reflect.Type) (any, error) {
	return nil, wrong("not a value")
}
func (in *evaluation) ConvertToType(t ref.Type) ref.Val { return convert(in, types.UnknownType, t) }
func (in *evaluation) Equal(other ref.Val) ref.Val      { return types.Bool(in == other) }
func (in *evaluation) Type() ref.Type                   { return types.DynType }
func (in *evaluation) Value() any                       { return nil }
