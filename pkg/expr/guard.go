package expr

import (
	"reflect"
	"strings"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// maxText is how long a text may get that a function makes, in bytes.
const maxText = 16 << 20

// guard is what an evaluation is wrapped into so that it ends: the rounds of loops are counted, calls that may take long weighed.
type guard struct {
	program  *Program
	weighing bool
	rounds   map[int64]int
}

// decorate is what cel-go calls with each part of a program.
func (g *guard) decorate(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok {
		i = g.call(call)
	}
	if work, ok := g.rounds[i.ID()]; ok {
		if step, ok := i.(interpreter.InterpretableV2); ok {
			return &turn{step, work}, nil
		}
	}
	return i, nil
}

// call replaces the functions whose result can be as long as the product of their arguments: with strings of 1 MB from an object
// they would ask for 1 TB of memory before anything is counted. The replacements do the same, and look before they leap.
func (g *guard) call(call interpreter.InterpretableCall) interpreter.Interpretable {
	var impl functions.FunctionOp
	switch call.Function() {
	case "replace":
		impl = replace
	case "join":
		impl = join
	case operators.Add:
		impl = add
	default:
		if w := g.program.weigh(call); g.weighing && w != nil {
			return w
		}
		return call
	}
	if !g.weighing && call.Function() == operators.Add {
		return &sum{call, call.Args()[0], call.Args()[1]}
	}
	safe := interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), impl)
	if !g.weighing {
		return safe
	}
	return &weighed{InterpretableCall: safe, weigh: weightOf(call.Function()), impl: impl}
}

// sum is a call of add that takes no list of its arguments.
type sum struct {
	interpreter.InterpretableCall

	a, b interpreter.InterpretableV2
}

// Exec implements interpreter.InterpretableV2.
func (s *sum) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a := s.a.Exec(frame)
	if types.IsUnknownOrError(a) {
		return a
	}
	b := s.b.Exec(frame)
	if types.IsUnknownOrError(b) {
		return b
	}
	return types.LabelErrNode(s.ID(), addTwo(a, b))
}

// Eval implements interpreter.Interpretable.
func (s *sum) Eval(vars interpreter.Activation) ref.Val { return s.Exec(interpreter.AsFrame(vars)) }

func add(args ...ref.Val) ref.Val { return addTwo(args[0], args[1]) }

// addTwo is a + b. In a chain of binds a text may double at each step, at a cost of 1 where the types are not known.
func addTwo(x, y ref.Val) ref.Val {
	a, ok1 := x.(types.String)
	b, ok2 := y.(types.String)
	if ok1 && ok2 {
		if len(a)+len(b) > maxText {
			return types.WrapErr(tooMuch("+ would make a text of more than 16 MiB"))
		}
		return a + b
	}
	adder, ok := x.(traits.Adder)
	if !ok {
		return noOverload(operators.Add)
	}
	sum := adder.Add(y)
	if _, growing := sum.(traits.MutableLister); growing {
		return sum // of a macro
	}
	if list, ok := sum.(traits.Lister); ok {
		return flat(list)
	}
	return sum
}

// maxList is how many elements a list may have that + makes.
const maxList = 1 << 20

// flat copies a list. cel-go's own sum is a tree of its parts: in a chain of binds it doubles at each step, and to ask for its size takes as
// many calls as it has leaves.
func flat(list traits.Lister) ref.Val {
	if size, _ := list.Size().(types.Int); size > maxList {
		return types.WrapErr(tooMuch("+ would make a list of more than 1,048,576 elements"))
	}
	var elems []ref.Val
	for it := list.Iterator(); it.HasNext() == types.True; {
		elems = append(elems, it.Next())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elems)
}

// replace is s.replace(old, new) and s.replace(old, new, n).
func replace(args ...ref.Val) ref.Val {
	if len(args) < 3 {
		return noOverload("replace")
	}
	s, ok1 := args[0].(types.String)
	was, ok2 := args[1].(types.String)
	is, ok3 := args[2].(types.String)
	n, ok4 := types.Int(-1), true
	if len(args) > 3 {
		n, ok4 = args[3].(types.Int)
	}
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return noOverload("replace")
	}
	times := strings.Count(string(s), string(was))
	if n >= 0 {
		times = int(min(int64(times), int64(n)))
	}
	if len(s)+times*(len(is)-len(was)) > maxText {
		return types.WrapErr(tooMuch("replace() would make a text of more than 16 MiB"))
	}
	return types.String(strings.Replace(string(s), string(was), string(is), int(n)))
}

// join is list.join() and list.join(separator).
func join(args ...ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	separator := types.String("")
	if ok && len(args) > 1 {
		separator, ok = args[1].(types.String)
	}
	if !ok {
		return noOverload("join")
	}
	native, err := list.ConvertToNative(reflect.TypeFor[[]string]())
	if err != nil {
		return types.WrapErr(wrong("join() of a list that has other elements than strings"))
	}
	parts, _ := native.([]string)
	length := len(parts) * len(separator)
	for _, part := range parts {
		length += len(part)
	}
	if length > maxText {
		return types.WrapErr(tooMuch("join() would make a text of more than 16 MiB"))
	}
	return types.String(strings.Join(parts, string(separator)))
}

func noOverload(function string) ref.Val { return types.NewErr("no such overload: %s", function) }
