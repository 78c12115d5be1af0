package expr

import (
	"slices"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// weighed is a call that may take longer than a step. Its work, about in nanoseconds, is charged to the meter before it begins, that of
// what it makes afterwards.
type weighed struct {
	interpreter.InterpretableCall

	weigh  func(m *meter, args []ref.Val) int
	impl   functions.FunctionOp
	always bool // also of arguments that are small
}

// Function hides the name from cel-go's optimizer, which would put the plain function back if the pattern is a constant.
func (w *weighed) Function() string { return at + w.InterpretableCall.Function() }

// Exec implements interpreter.InterpretableV2.
func (w *weighed) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var few [4]ref.Val
	args := few[:0]
	for _, arg := range w.Args() {
		v := arg.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args = append(args, v)
	}
	in := (*evaluation)(nil)
	if w.always || !small(args) {
		in = evaluationOf(frame)
	}
	if in == nil {
		return types.LabelErrNode(w.ID(), w.impl(args...))
	}
	in.meter.charge(w.weigh(&in.meter, args))
	result := w.impl(args...)
	in.meter.charge(lengths(resultWork, result))
	return types.LabelErrNode(w.ID(), result)
}

// smallText is how long a text may be, in bytes, to be paid for by the step that it is used in.
const smallText = 64

// small reports whether there are only values that no function takes long for: calls of these are not weighed.
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
func (w *weighed) Eval(vars interpreter.Activation) ref.Val { return w.Exec(interpreter.AsFrame(vars)) }

// Work by length: of texts by byte, of lists by element.
const (
	compareWork = 1 // also of texts of the same length, which are compared many bytes at a time
	textWork    = 4
	resultWork  = 32
	elementsBy  = 64
	deepWork    = 4 // of all that is in a value
)

// constantFunctions take no longer than a step whatever their arguments, or charge what they read themselves.
func constantFunctions() []string {
	return []string{
		operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.NotStrictlyFalse,
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
		operators.Index, operators.OptIndex, operators.OptSelect, "dyn", "type", "optional.of", "optional.none", "optional.ofNonZeroValue", "orValue",
		"or", "hasValue", "value", "cel.@mapInsert", at + fnChanged, at + fnLookup, at + fnCount, at + fnGet, at + fnList,
	}
}

// weigh wraps a call that has to be weighed; nil: it has not.
func (p *Program) weigh(call interpreter.InterpretableCall) interpreter.Interpretable {
	if slices.Contains(constantFunctions(), call.Function()) {
		return nil
	}
	w := &weighed{InterpretableCall: call, weigh: weightOf(call.Function()), always: call.Function() == "lists.range"}
	switch call.Function() {
	case "matches", "find", "findAll":
		pattern := newPattern(call)
		w.weigh, w.impl = pattern.weigh, pattern.run(call.Function())
	case operators.Equals:
		w.impl = func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	case operators.NotEquals:
		w.impl = func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }
	default:
		w.impl = p.binding(call)
	}
	if w.impl == nil {
		return nil
	}
	return w
}

// weightOf is how much work a function is. One that is not named here takes time in proportion to its arguments.
func weightOf(function string) func(m *meter, args []ref.Val) int {
	switch function {
	case operators.Equals, operators.NotEquals:
		return weighEquals
	case operators.Add:
		return func(_ *meter, args []ref.Val) int { return lengths(2*elementsBy, args...) }
	case operators.In:
		return func(m *meter, args []ref.Val) int { return lengths(elementsBy, args[1]) + depth(m, args) }
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, "startsWith", "endsWith", "size", "contains":
		return func(_ *meter, args []ref.Val) int { return lengths(compareWork, args...) }
	case "sets.contains", "sets.intersects", "sets.equivalent":
		return func(m *meter, args []ref.Val) int { return plus(product(64, args), depth(m, args)) }
	case "indexOf", "lastIndexOf":
		return func(m *meter, args []ref.Val) int { return plus(product(1, args), depth(m, args)) }
	case "distinct":
		return func(m *meter, args []ref.Val) int {
			return plus(product(32, []ref.Val{args[0], args[0]}), product(max(1, depth(m, args)), args[:1]))
		}
	case "quantity", "isQuantity":
		return func(_ *meter, args []ref.Val) int { return product(1, []ref.Val{args[0], args[0]}) / 16 }
	case "lists.range":
		return func(_ *meter, args []ref.Val) int {
			n, _ := args[0].(types.Int)
			return product(elementsBy, []ref.Val{n})
		}
	case "format", "flatten", "sort", "join":
		return func(m *meter, args []ref.Val) int { return lengths(elementsBy*8, args...) + depth(m, args) }
	}
	return func(_ *meter, args []ref.Val) int { return lengths(elementsBy, args...) }
}

// weighEquals: texts of different lengths are never equal, nor are values of different kinds.
func weighEquals(m *meter, args []ref.Val) int {
	a, isText := args[0].(types.String)
	b, both := args[1].(types.String)
	switch {
	case isText && both && len(a) == len(b):
		return compareWork * len(a)
	case isText || both:
		return 0
	}
	return depth(m, args)
}

// lengths is the work of going through texts, in bytes, and lists, in elements. Maps charge what is read of them themselves.
func lengths(by int, vals ...ref.Val) (work int) {
	for _, v := range vals {
		switch v := v.(type) {
		case types.String:
			work += min(by, textWork) * len(v)
		case types.Bytes:
			work += min(by, textWork) * len(v)
		case traits.MutableLister: // that of a macro, which grows in place
		case traits.Lister:
			size, _ := v.Size().(types.Int)
			work += by * int(size)
		}
	}
	return work
}

// depth is the work of going through all that is in the values, one inside of the other. To find out takes as long, so it charges that.
func depth(m *meter, vals []ref.Val) (work int) {
	for _, v := range vals {
		switch v := v.(type) {
		case types.String:
			work += compareWork * len(v)
		case types.Bytes:
			work += compareWork * len(v)
		case *mapValue:
			work += deepWork * len(v.raw())
		case *listValue:
			work += deepWork * len(v.raw())
		case traits.Lister:
			work += depthOf(m, v)
		case traits.Mapper:
			work += depthOf(m, v)
			for it := v.Iterator(); it.HasNext() == types.True; {
				work += depth(m, []ref.Val{v.Get(it.Next())})
			}
		case *types.Optional:
			if v.HasValue() {
				work += depth(m, []ref.Val{v.GetValue()})
			}
		}
	}
	return work
}

// depthOf goes through the elements of a list, or the keys of a map.
func depthOf(m *meter, v traits.Iterable) (work int) {
	for it := v.Iterator(); it.HasNext() == types.True; {
		m.charge(elementsBy)
		work += elementsBy + depth(m, []ref.Val{it.Next()})
	}
	return work
}

// plus adds, up to tooHeavy.
func plus(a, b int) int { return min(a+b, tooHeavy) }

// tooHeavy is more than any meter has.
const tooHeavy = 1 << 40

// product multiplies the lengths of texts and lists, and numbers, up to tooHeavy. What is neither has the length 1.
func product(by int, args []ref.Val) int {
	n := by
	for _, arg := range args[:min(2, len(args))] {
		length := 1
		switch v := arg.(type) {
		case types.String:
			length = len(v)
		case types.Int:
			length = int(min(max(v, 0), tooHeavy))
		case traits.Lister:
			size, _ := v.Size().(types.Int)
			length = int(size)
		}
		if length = max(1, length); n > tooHeavy/length {
			return tooHeavy
		}
		n *= length
	}
	return n
}

// binding returns what a call calls.
func (p *Program) binding(call interpreter.InterpretableCall) functions.FunctionOp {
	decl := p.scope.cel.Functions()[call.Function()]
	if decl == nil {
		return nil
	}
	bindings, err := decl.Bindings()
	if err != nil {
		return nil
	}
	for _, name := range []string{call.OverloadID(), call.Function()} { // the latter chooses by the types of the arguments
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

// withTrait calls what can be relied on to take its first argument: cel-go asks before it calls.
func withTrait(b *functions.Overload, impl functions.FunctionOp) functions.FunctionOp {
	if b.OperandTrait == 0 {
		return impl
	}
	return func(args ...ref.Val) ref.Val {
		if !args[0].Type().HasTrait(b.OperandTrait) {
			return noOverload(b.Operator)
		}
		return impl(args...)
	}
}
