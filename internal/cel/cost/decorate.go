package cost

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Options make a program of a linked tree that ends: the rounds of its loops are counted, and calls
// that may take long are weighed, unless the length of the text bounds both.
func Options(env *cel.Env, tree *cel.Ast) []cel.ProgramOption {
	root := tree.NativeRep().Expr()
	d := decorator{cel: env, weighing: !isLinear(root), rounds: rounds(root)}
	return []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.CustomDecorator(d.decorate)}
}

// isLinear reports whether the time of an evaluation is bounded by the length of the expression
// times the size of the values that it reads, which the meter bounds: there is no loop, and each
// function takes time in proportion to its arguments. Such an evaluation needs no further limit,
// and counting its steps would take as long as the steps.
func isLinear(root ast.Expr) bool {
	linear := true
	syntax.Walk(root, nil, func(e ast.Expr, _ []string) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			linear = false
		case ast.CallKind:
			linear = linear && table[e.AsCall().FunctionName()].linear
		default:
		}
	})
	return linear
}

// decorator wraps the parts of one program.
type decorator struct {
	cel      *cel.Env
	weighing bool
	rounds   map[int64]int
}

// decorate is called by cel-go with each part of a program.
func (d *decorator) decorate(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok {
		i = d.call(call)
	}
	if work, ok := d.rounds[i.ID()]; ok {
		if step, ok := i.(interpreter.InterpretableV2); ok {
			return &loopStep{step, work}, nil
		}
	}
	return i, nil
}

// call replaces the functions whose result can be as long as the product of their arguments: with
// strings of 1 MB from an object they would allocate 1 TB before any cost is counted. The
// replacements have the same results, and check the size first.
func (d *decorator) call(call interpreter.InterpretableCall) interpreter.Interpretable {
	f := table[call.Function()]
	if f.bounded == nil {
		if w := d.weigh(call, f); d.weighing && w != nil {
			return w
		}
		return call
	}
	if !d.weighing && call.Function() == operators.Add {
		return &addCall{call, call.Args()[0], call.Args()[1]}
	}
	safe := interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), f.bounded)
	if !d.weighing {
		return safe
	}
	return &weighedCall{InterpretableCall: safe, weigh: f.weight(), impl: f.bounded}
}

// weigh wraps a call that has to be weighed; nil: it need not.
func (d *decorator) weigh(call interpreter.InterpretableCall, f function) interpreter.Interpretable {
	if f.free {
		return nil
	}
	w := &weighedCall{InterpretableCall: call, weigh: f.weight(), impl: f.impl, always: f.always}
	switch {
	case f.pattern:
		pattern := newPattern(call)
		w.weigh, w.impl = pattern.weigh, pattern.run(call.Function())
	case w.impl == nil:
		w.impl = d.binding(call)
	}
	if w.impl == nil {
		return nil
	}
	return w
}

// addCall is a call of add without a list of its arguments.
type addCall struct {
	interpreter.InterpretableCall

	a, b interpreter.InterpretableV2
}

// Exec implements interpreter.InterpretableV2.
func (c *addCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a := c.a.Exec(frame)
	if types.IsUnknownOrError(a) {
		return a
	}
	b := c.b.Exec(frame)
	if types.IsUnknownOrError(b) {
		return b
	}
	return types.LabelErrNode(c.ID(), addTwo(a, b))
}

// Eval implements interpreter.Interpretable.
func (c *addCall) Eval(vars interpreter.Activation) ref.Val { return c.Exec(interpreter.AsFrame(vars)) }

// binding returns the implementation of a call.
func (d *decorator) binding(call interpreter.InterpretableCall) functions.FunctionOp {
	decl := d.cel.Functions()[call.Function()]
	if decl == nil {
		return nil
	}
	bindings, err := decl.Bindings()
	if err != nil {
		return nil
	}
	// the latter selects by the types of the arguments
	for _, name := range []string{call.OverloadID(), call.Function()} {
		for _, b := range bindings {
			if b.Operator != name {
				continue
			}
			switch n := len(call.Args()); {
			case n == 1 && b.Unary != nil:
				return withTrait(b, func(args ...ref.Val) ref.Val { return b.Unary(args[0]) })
			case n == 2 && b.Binary != nil:
				return withTrait(b, func(args ...ref.Val) ref.Val { return b.Binary(args[0], args[1]) })
			case b.Function != nil:
				return withTrait(b, b.Function)
			}
		}
	}
	return nil
}

// withTrait calls impl if its first argument has the required trait: cel-go checks that before a
// call.
func withTrait(b *functions.Overload, impl functions.FunctionOp) functions.FunctionOp {
	if b.OperandTrait == 0 {
		return impl
	}
	return func(args ...ref.Val) ref.Val {
		if !args[0].Type().HasTrait(b.OperandTrait) {
			return celerr.NoOverload(b.Operator)
		}
		return impl(args...)
	}
}
