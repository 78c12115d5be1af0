package cost

import (
	"reflect"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
)

// maxText is the largest length in bytes of a text that a function makes.
const maxText = 16 << 20

func add(args ...ref.Val) ref.Val { return addTwo(args[0], args[1]) }

// addTwo is a + b. In a chain of binds a text may double at each step, at a cost of 1 if the types
// are unknown.
func addTwo(x, y ref.Val) ref.Val {
	a, ok1 := x.(types.String)
	b, ok2 := y.(types.String)
	if ok1 && ok2 {
		if len(a)+len(b) > maxText {
			return types.WrapErr(celerr.TooMuch("+ would make a text of more than 16 MiB"))
		}
		return a + b
	}
	adder, ok := x.(traits.Adder)
	if !ok {
		return celerr.NoOverload(operators.Add)
	}
	sum := adder.Add(y)
	if _, growing := sum.(traits.MutableLister); growing {
		return sum // of a macro
	}
	if list, ok := sum.(traits.Lister); ok {
		return copyList(list)
	}
	return sum
}

// maxList is the largest number of elements of a list that + makes.
const maxList = 1 << 20

// copyList copies a list. cel-go's own concatenation is a tree of its parts: in a chain of binds it
// doubles at each step, and a call of Size visits all leaves.
func copyList(list traits.Lister) ref.Val {
	if size, _ := list.Size().(types.Int); size > maxList {
		return types.WrapErr(celerr.TooMuch("+ would make a list of more than 1,048,576 elements"))
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
		return celerr.NoOverload("replace")
	}
	s, ok1 := args[0].(types.String)
	was, ok2 := args[1].(types.String)
	is, ok3 := args[2].(types.String)
	n, ok4 := types.Int(-1), true
	if len(args) > 3 {
		n, ok4 = args[3].(types.Int)
	}
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return celerr.NoOverload("replace")
	}
	times := strings.Count(string(s), string(was))
	if n >= 0 {
		times = int(min(int64(times), int64(n)))
	}
	if len(s)+times*(len(is)-len(was)) > maxText {
		return types.WrapErr(celerr.TooMuch("replace() would make a text of more than 16 MiB"))
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
		return celerr.NoOverload("join")
	}
	native, err := list.ConvertToNative(reflect.TypeFor[[]string]())
	if err != nil {
		return types.WrapErr(celerr.Wrong("join() takes a list of strings"))
	}
	parts, _ := native.([]string)
	length := len(parts) * len(separator)
	for _, part := range parts {
		length += len(part)
	}
	if length > maxText {
		return types.WrapErr(celerr.TooMuch("join() would make a text of more than 16 MiB"))
	}
	return types.String(strings.Join(parts, string(separator)))
}
