package jsonval

import (
	"math"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
)

// AppendKeys appends keys made of the result of an index.
func AppendKeys(keys []string, v ref.Val) ([]string, error) {
	var it traits.Iterator
	switch v := v.(type) {
	case *List:
		it = v.Iterator()
	case traits.Lister:
		if texts, ok := v.Value().([]string); ok { // a result of split()
			for _, text := range texts {
				if text != "" {
					keys = append(keys, text)
				}
			}
			return keys, nil
		}
		it = v.Iterator()
	case traits.Mapper:
		it = v.Iterator()
	default:
		return appendKey(keys, v)
	}
	var err error
	for it.HasNext() == types.True {
		if keys, err = appendKey(keys, it.Next()); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func appendKey(keys []string, v ref.Val) ([]string, error) {
	v = Unwrap(v)
	if _, none := v.(types.Null); none {
		return keys, nil
	}
	key, err := Canonical(v)
	if err == nil && key != "" {
		keys = append(keys, key)
	}
	return keys, err
}

// Canonical returns the text of a value in an index, equal for equal values: a string is itself, a
// bool true or false, a whole number its decimal digits, also if it is a double (1.0 is 1), another
// double its shortest digits.
func Canonical(v ref.Val) (string, error) {
	d, ok := v.(types.Double)
	switch f := float64(d); {
	case !ok:
		return Scalar(v)
	case math.IsNaN(f):
		return "", celerr.Wrong("NaN cannot be a key of an index")
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return strconv.FormatInt(int64(f), 10), nil
	case f == math.Trunc(f) && f >= 0 && f < 1<<64:
		return strconv.FormatUint(uint64(f), 10), nil
	default:
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
}

// Unwrap returns the value of an optional, null if it has none.
func Unwrap(v ref.Val) ref.Val {
	optional, ok := v.(*types.Optional)
	switch {
	case !ok:
		return v
	case optional.HasValue():
		return Unwrap(optional.GetValue())
	}
	return types.NullValue
}

// Scalar returns the text of a string, int or bool. An index accepts more types, see [Canonical].
func Scalar(v ref.Val) (string, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), nil
	case types.Null:
		return "", celerr.Absent("the value is null")
	}
	return "", celerr.Wrong("a " + TypeName(v) + " where a string, an int or a bool is needed")
}

// TypeName returns the name of the type of a value.
func TypeName(v ref.Val) string {
	if v == nil {
		return "none"
	}
	return v.Type().TypeName()
}
