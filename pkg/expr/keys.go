package expr

import (
	"math"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// keysOf makes keys of the result of an index.
func keysOf(v ref.Val) ([]string, error) {
	var it traits.Iterator
	switch v := v.(type) {
	case traits.Lister:
		it = v.Iterator()
	case traits.Mapper:
		it = v.Iterator()
	default:
		return appendKey(nil, v)
	}
	var keys []string
	var err error
	for it.HasNext() == types.True {
		if keys, err = appendKey(keys, it.Next()); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func appendKey(keys []string, v ref.Val) ([]string, error) {
	v = unwrap(v)
	if _, none := v.(types.Null); none {
		return keys, nil
	}
	key, err := canonical(v)
	if err == nil && key != "" {
		keys = append(keys, key)
	}
	return keys, err
}

// canonical is the text that stands for a value in an index, the same for values that are equal: a string is itself, a bool true or
// false, a whole number its decimal digits, also if it is a double (1.0 is 1), another double its shortest digits.
func canonical(v ref.Val) (string, error) {
	d, ok := v.(types.Double)
	switch f := float64(d); {
	case !ok:
		return scalar(v)
	case math.IsNaN(f):
		return "", wrong("NaN equals nothing, so there is nothing to find it by")
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return strconv.FormatInt(int64(f), 10), nil
	case f == math.Trunc(f) && f >= 0 && f < 1<<64:
		return strconv.FormatUint(uint64(f), 10), nil
	default:
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
}
