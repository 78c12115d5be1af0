package cost

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
)

// Work by length: of texts by byte, of lists by element.
const (
	compareWork = 1 // also of texts of the same length, which are compared many bytes at a time
	textWork    = 4
	resultWork  = 32
	elementsBy  = 64
	deepWork    = 4 // of all that is in a value
)

// workOfEquals: texts of different lengths are never equal, nor are values of different kinds.
func workOfEquals(m *jsonval.Meter, args []ref.Val) int {
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

func workOfAdd(_ *jsonval.Meter, args []ref.Val) int { return lengths(2*elementsBy, args...) }

func workOfCompare(_ *jsonval.Meter, args []ref.Val) int { return lengths(compareWork, args...) }

func workOfIn(m *jsonval.Meter, args []ref.Val) int {
	return lengths(elementsBy, args[1]) + depth(m, args)
}

func workOfSets(m *jsonval.Meter, args []ref.Val) int {
	return plus(product(64, args), depth(m, args))
}

func workOfSearch(m *jsonval.Meter, args []ref.Val) int {
	return plus(product(1, args), depth(m, args))
}

func workOfDistinct(m *jsonval.Meter, args []ref.Val) int {
	return plus(product(32, []ref.Val{args[0], args[0]}), product(max(1, depth(m, args)), args[:1]))
}

func workOfQuantity(_ *jsonval.Meter, args []ref.Val) int {
	return product(1, []ref.Val{args[0], args[0]}) / 16
}

func workOfRange(_ *jsonval.Meter, args []ref.Val) int {
	n, _ := args[0].(types.Int)
	return product(elementsBy, []ref.Val{n})
}

func workOfGather(m *jsonval.Meter, args []ref.Val) int {
	return lengths(elementsBy*8, args...) + depth(m, args)
}

// lengths returns the work of reading texts, in bytes, and lists, in elements. Maps charge their
// reads themselves.
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

// depth is the work of going through all that is in the values, one inside of the other. To find
// out takes as long, so it charges that.
func depth(m *jsonval.Meter, vals []ref.Val) (work int) {
	for _, v := range vals {
		switch v := v.(type) {
		case types.String:
			work += compareWork * len(v)
		case types.Bytes:
			work += compareWork * len(v)
		case *jsonval.Map:
			work += deepWork * len(v.Raw())
		case *jsonval.List:
			work += deepWork * len(v.Raw())
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
func depthOf(m *jsonval.Meter, v traits.Iterable) (work int) {
	for it := v.Iterator(); it.HasNext() == types.True; {
		m.Charge(elementsBy)
		work += elementsBy + depth(m, []ref.Val{it.Next()})
	}
	return work
}

// plus adds, up to tooHeavy.
func plus(a, b int) int { return min(a+b, tooHeavy) }

// tooHeavy is more than any meter has.
const tooHeavy = 1 << 40

// product multiplies the lengths of texts and lists, and numbers, up to tooHeavy. Any other value
// has the length 1.
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
