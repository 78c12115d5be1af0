package cost

import (
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// weighedCall is a call that may take longer than a step. Its work, about in nanoseconds, is
// charged to the meter before the call, and the work of its result afterwards.
type weighedCall struct {
	interpreter.InterpretableCall

	weigh  func(m *jsonval.Meter, args []ref.Val) int
	impl   functions.FunctionOp
	always bool // even with small arguments
}

// Function hides the name from cel-go's optimizer, which would put the plain function back if the
// pattern is a constant.
func (w *weighedCall) Function() string { return syntax.Prefix + w.InterpretableCall.Function() }

// Exec implements interpreter.InterpretableV2.
func (w *weighedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var few [4]ref.Val
	args := few[:0]
	for _, arg := range w.Args() {
		v := arg.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args = append(args, v)
	}
	m := (*jsonval.Meter)(nil)
	if w.always || !small(args) {
		m = meterOf(frame)
	}
	if m == nil {
		return types.LabelErrNode(w.ID(), w.impl(args...))
	}
	m.Charge(w.weigh(m, args))
	result := w.impl(args...)
	m.Charge(lengths(resultWork, result))
	return types.LabelErrNode(w.ID(), result)
}

// smallText is the length of a text in bytes up to which the step that uses it pays for it.
const smallText = 64

// small reports whether all values are small for every function: such calls are not weighed.
func small(args []ref.Val) bool {
	for _, arg := range args {
		switch v := arg.(type) {
		case types.String:
			if len(v) > smallText {
				return false
			}
		case types.Bool, types.Int, types.Uint, types.Double, types.Null, types.Timestamp, types.Duration:
		default:
			return false
		}
	}
	return true
}

// Eval implements interpreter.Interpretable.
func (w *weighedCall) Eval(vars interpreter.Activation) ref.Val {
	return w.Exec(interpreter.AsFrame(vars))
}
