package cost

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// cel-go's own tracker of the cost searches a stack for each step, and the stack grows with each
// round of a loop: the time to count is the square of the length of the list. Here a round of a
// loop is charged as a whole, when it begins, with the largest number of steps that it can have,
// which follows from the text. Steps outside of loops are bounded by the length of the text and
// need no counting. Calls that take longer than a step are weighed when they are made, see
// [weighedCall]. Reads are charged by the values, see [jsonval.Meter].

// loopStep is the step that a loop runs for each element.
type loopStep struct {
	interpreter.InterpretableV2

	work int
}

// Exec implements interpreter.InterpretableV2.
func (s *loopStep) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if m := meterOf(frame); m != nil {
		m.Round(s.work)
	}
	return s.InterpretableV2.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (s *loopStep) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// MeterVariable is the variable by which an evaluation hands out its meter. It cannot be written in
// an expression.
const MeterVariable = "@meter"

// meterOf returns the meter of the evaluation; nil while cel-go folds constants.
func meterOf(frame *interpreter.ExecutionFrame) *jsonval.Meter {
	v, _ := frame.ResolveName(MeterVariable)
	m, _ := v.(*jsonval.Meter)
	return m
}

// rounds returns the work of a round of each loop, by the id of its step: all that stands in it.
func rounds(e ast.Expr) map[int64]int {
	work := make(map[int64]int)
	syntax.Walk(e, nil, func(e ast.Expr, _ []string) {
		if e.Kind() == ast.ComprehensionKind {
			c := e.AsComprehension()
			work[c.LoopStep().ID()] = turnWork + StepWork*(stepsOf(c.LoopCondition())+stepsOf(c.LoopStep()))
		}
	})
	return work
}

// Measured values; the real work of a step differs by half.
const (
	turnWork  = 50
	StepWork  = 50
	listSteps = 3
	mapSteps  = 10
)

// stepsOf returns the largest number of steps of an expression, without the repetitions of its
// loops.
func stepsOf(e ast.Expr) (n int) {
	syntax.Walk(e, nil, func(e ast.Expr, _ []string) {
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
