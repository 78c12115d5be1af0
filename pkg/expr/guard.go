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

// guard replaces the functions whose result can be as long as the product of their arguments: with strings of 1 MB from an object
// they would ask for 1 TB of memory before any cost is counted. The replacements do the same, and look before they leap. What takes long
// rather than much is weighed, see [weighed].
func (p *Program) guard(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	var impl functions.FunctionOp
	switch call.Function() {
	case "replace":
		impl = replace
	case "join":
		impl = join
	case operators.Add:
		impl = add
	default:
		if w := p.weigh(call); w != nil {
			return w, nil
		}
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), impl), nil
}

// add is a + b. In a chain of binds a text may double at each step, at a cost of 1 where the types are not known.
func add(args ...ref.Val) ref.Val {
	a, ok1 := args[0].(types.String)
	b, ok2 := args[1].(types.String)
	if ok1 && ok2 && len(a)+len(b) > maxText {
		return types.WrapErr(tooMuch("+ would make a text of more than 16 MiB"))
	}
	if adder, ok := args[0].(traits.Adder); ok {
		return adder.Add(args[1])
	}
	return noOverload(operators.Add)
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
