package expr

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// cel-go's own tracker of the cost looks through a stack for each step, which grows with each round of a loop: the time to count is the
// square of the length of the list. Here a round of a loop is charged as a whole, when it begins: by the number of steps that it can have
// at most, which is known from the text. Steps outside of loops are as many as the text is long and need no counting; calls that take
// longer than a step are weighed when they are made, see [weighed]; what is read is charged where it is read, see [meter].

// turn is what a loop does for each element.
type turn struct {
	interpreter.InterpretableV2

	work int
}

// Exec implements interpreter.InterpretableV2.
func (t *turn) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if in := evaluationOf(frame); in != nil {
		in.turn(t.work)
	}
	return t.InterpretableV2.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (t *turn) Eval(vars interpreter.Activation) ref.Val { return t.Exec(interpreter.AsFrame(vars)) }

func evaluationOf(frame *interpreter.ExecutionFrame) *evaluation {
	v, _ := frame.ResolveName(nameInput)
	in, _ := v.(*evaluation)
	return in
}

// turn charges a round of a loop, and ends the evaluation if its context has ended.
func (in *evaluation) turn(work int) {
	in.meter.charge(work)
	if in.done == nil {
		return
	}
	if in.turns++; in.turns%interruptFrequency != 0 {
		return
	}
	select {
	case <-in.done:
		in.interrupted = true
		//nolint:forbidigo // see meter.charge
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: "interrupted"})
	default:
	}
}

// rounds returns the work of a round of each loop, by the id of its step: all that stands in it.
func rounds(e ast.Expr) map[int64]int {
	work := make(map[int64]int)
	walk(e, nil, func(e ast.Expr, _ []string) {
		if e.Kind() == ast.ComprehensionKind {
			c := e.AsComprehension()
			work[c.LoopStep().ID()] = turnWork + stepWork*(stepsOf(c.LoopCondition())+stepsOf(c.LoopStep()))
		}
	})
	return work
}

// Measured; what a step takes differs by half.
const (
	turnWork  = 50
	stepWork  = 50
	listSteps = 3
	mapSteps  = 10
)

// stepsOf is how many steps an expression takes at most, without what loops in it repeat.
func stepsOf(e ast.Expr) (n int) {
	walk(e, nil, func(e ast.Expr, _ []string) {
		switch e.Kind() {
		case ast.IdentKind, ast.SelectKind:
			n++
		case ast.ListKind:
			n += listSteps
		case ast.MapKind, ast.StructKind:
			n += mapSteps
		case ast.ComprehensionKind:
			n += mapSteps
		case ast.CallKind:
			switch name := e.AsCall().FunctionName(); name {
			case operators.Conditional:
				args := e.AsCall().Args()
				n -= min(stepsOf(args[1]), stepsOf(args[2])) // of these, one is evaluated
			case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse:
			default:
				n++
			}
		case ast.LiteralKind, ast.UnspecifiedExprKind:
		}
	})
	return n
}
