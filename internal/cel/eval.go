package cel

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/builtin"
	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/cost"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/pkg/event"
)

var _ cel.Activation = (*evaluation)(nil)

func (p *Program) start(in Input) *evaluation {
	e, _ := p.env.evaluations.Get().(*evaluation)
	if p.others != nil && in.Delta != nil && p.others[in.Delta.Source] != nil {
		p = p.others[in.Delta.Source]
	}
	// The pool has only empty evaluations, see release.
	e.program, e.budget, e.group = p, in.Budget, in.Group
	e.run.Meter = jsonval.NewMeter(p.limit * cost.WorkPerCost)
	e.run.Delta, e.run.Cache, e.run.Paths, e.run.Sources = in.Delta, in.Cache, p.linked.Paths, &p.env.sources
	if in.Delta != nil {
		e.of = in.Delta.Object()
	}
	return e
}

// release returns the evaluation to the pool. Its results must have been copied: they read through
// its meter.
func (in *evaluation) release() {
	pool := &in.program.env.evaluations
	*in = evaluation{} // drops all references to objects
	pool.Put(in)
}

// evaluate runs the program. Only a program with loops can last long enough for a check of the
// context.
func (in *evaluation) evaluate(ctx context.Context) (ref.Val, error) {
	if in.program.loops {
		in.run.Meter.Watch(ctx.Done())
	}
	v, err := in.runToEnd()
	if in.run.Meter.Interrupted() {
		cause := context.Cause(ctx)
		return nil, &celerr.EvalError{Reason: "interrupted: " + cause.Error(), Class: cause}
	}
	return v, err
}

// runToEnd evaluates without a context.
func (in *evaluation) runToEnd() (ref.Val, error) {
	if in.of == nil && in.event == nil {
		return nil, &celerr.EvalError{Reason: "there is no object to evaluate"}
	}
	if err := in.budget.overdrawn(); err != nil {
		return nil, err
	}
	v, _, err := in.program.program.Eval(in)
	in.cost = in.program.limit - in.run.Meter.Remaining()/cost.WorkPerCost
	in.budget.spend(in.cost)
	if err != nil {
		return nil, in.program.evalError(err)
	}
	in.run.Meter.Lift()
	return v, nil
}

// ResolveName implements cel.Activation.
func (in *evaluation) ResolveName(name string) (any, bool) {
	if in.event != nil {
		return in.event.resolve(name, &in.run.Meter)
	}
	switch name {
	case syntax.VarObject:
		if in.object == nil {
			in.object = in.fields.Object(string(in.of.Raw()), &in.run.Meter, in.program.info)
		}
		return in.object, true
	case syntax.VarInput:
		return &in.run, true
	case cost.MeterVariable:
		return &in.run.Meter, true
	case syntax.VarCluster:
		return in.program.env.cluster, true
	}
	if strings.HasPrefix(name, syntax.Prefix) {
		return types.NullValue, true // stands for a type
	}
	if in.run.Delta == nil {
		return in.program.source, name == syntax.VarSource
	}
	switch name {
	case syntax.VarOldObject:
		if in.oldObject == nil {
			in.oldObject = types.NullValue
			if in.run.Delta.Old != nil {
				in.oldObject = in.oldFields.Object(string(in.run.Delta.Old.Raw()), &in.run.Meter, in.program.info)
			}
		}
		return in.oldObject, true
	case syntax.VarOp:
		if int(in.run.Delta.Op) < len(in.program.env.ops) {
			return in.program.env.ops[in.run.Delta.Op], true
		}
	case syntax.VarSource:
		return types.String(in.run.Delta.Source), true
	}
	return in.ruled(name)
}

// ruled resolves the variables of the rules about time, and the event of an upstream route.
func (in *evaluation) ruled(name string) (any, bool) {
	switch d := in.run.Delta; name {
	case syntax.VarNow: // of the delta: all its evaluations have the same time
		return types.Timestamp{Time: d.Seen}, true
	case syntax.VarSince:
		if d.Since.IsZero() {
			return types.NullValue, true
		}
		return types.Timestamp{Time: d.Since}, true
	case syntax.VarLate:
		return types.Bool(d.Late), true
	case syntax.VarRepeat:
		return types.Bool(d.Repeat > 0), true
	case syntax.VarSuppressed:
		return types.Int(d.Suppressed), true
	case syntax.VarObjects:
		return in.objectsOf(in.group), true
	case syntax.VarEvents:
		return in.eventsOf(in.group), true
	case syntax.VarEvent:
		if in.fed == nil {
			in.fed = typeset.NewEvent(d.Event, &in.run.Meter)
		}
		return in.fed, true
	}
	return nil, false
}

// objectsOf returns `objects`: the objects of a group of deltas, or of the single delta.
func (in *evaluation) objectsOf(group []*event.Delta) ref.Val {
	if len(group) == 0 {
		group = []*event.Delta{in.run.Delta}
	}
	vals := make([]ref.Val, len(group))
	for i, d := range group {
		vals[i] = in.run.Found(d.Source, d.Object())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// eventsOf returns `events`, as objectsOf returns `objects`.
func (in *evaluation) eventsOf(group []*event.Delta) ref.Val {
	if len(group) == 0 {
		group = []*event.Delta{in.run.Delta}
	}
	vals := make([]ref.Val, len(group))
	for i, d := range group {
		vals[i] = typeset.NewEvent(d.Event, &in.run.Meter)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// Parent implements cel.Activation.
func (in *evaluation) Parent() cel.Activation { return nil }

// evaluation is one run of a program: the variables that it has and the rest of its budget. It
// belongs to one goroutine.
type evaluation struct {
	program *Program
	run     builtin.Run   // the state of our functions
	of      *event.Object // object
	// replaces it and run's delta; nil: the evaluation has a delta or object
	event  *aboutEvent
	budget *Budget
	group  []*event.Delta
	cost   int // of the whole evaluation, once it has ended; at most the limit
	// The values of the variables, made at first use, and the positions of their fields that were
	// found so far.
	object, oldObject, fed ref.Val // fed is the value of `event`
	fields, oldFields      jsonval.Root
}

// budgetLimit is the cost that evaluations with a shared budget may have together: that of ten
// evaluations at their own limit.
const budgetLimit = 10 * cost.Limit

// Budget bounds the cost of several evaluations together, those of all routes for one delta: a
// thousand evaluations within their own limits would still block a source. The zero Budget is full.
// It belongs to one goroutine.
type Budget struct {
	spent int
}

// Spent returns the cost of the evaluations so far.
func (b *Budget) Spent() int { return b.spent }

// overdrawn is the error of an evaluation for which the budget has nothing left.
func (b *Budget) overdrawn() error {
	if b == nil || b.spent < budgetLimit {
		return nil
	}
	return &celerr.EvalError{Reason: fmt.Sprintf("the routes together have reached the limit of %d for one delta", budgetLimit), Class: celerr.ErrCost}
}

// spend subtracts the cost of one evaluation.
func (b *Budget) spend(cost int) {
	if b != nil {
		b.spent += cost
	}
}

// Cache answers lookup, count, get and list.
type Cache = builtin.Cache

// Input has the values of an evaluation.
type Input struct {
	Delta *event.Delta
	Cache Cache // may be nil for a program without [Program.Sources]
	// Group has the deltas that are evaluated together; Delta is the last one. `objects` has their
	// objects. nil: Delta alone.
	Group []*event.Delta
	// Budget is shared with other evaluations; nil: only the program's own limit counts.
	Budget *Budget
}
