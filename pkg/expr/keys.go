package expr

import (
	"math"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Reader reads an object for several indexes, one after the other: what one of them passed on its way the next need not pass again. The
// zero Reader is ready for use. It belongs to one goroutine.
type Reader struct {
	in evaluation
}

// Reset makes it read another object; nil: it keeps none.
func (r *Reader) Reset(obj *event.Object) { r.in = evaluation{of: obj} }

// Keys appends what [Program.Keys] returns.
func (r *Reader) Keys(keys []string, p *Program) ([]string, error) {
	if was := r.in.program; was == nil || was.shape != p.shape {
		r.in = evaluation{of: r.in.of}
	}
	r.in.program, r.in.meter.left = p, p.limit*workPerCost
	v, err := r.in.runToEnd()
	if err != nil {
		return keys, err
	}
	all, err := appendKeys(keys, unwrap(v))
	if err != nil {
		return keys, p.evalError(err)
	}
	return all, nil
}

// Field is [Field.ReadIn].
func (r *Reader) Field(f *Field) (value string, reading Reading) {
	text := string(r.in.of.Raw())
	root := &r.in.fields
	open, _ := root.find(text, f.path[0])
	if open == "" {
		return f.missing(0)
	}
	at := len(text) - len(open)
	for i := 1; i < len(f.path); i++ {
		if open[0] != '{' {
			return "", Unclear
		}
		if open = member(open, f.path[i]); open == "" {
			return f.missing(i)
		}
		// What comes behind the field is found faster from here than from where it began.
		if root.cursor.atValue && root.cursor.at == at {
			root.cursor.inner, root.cursor.depth = len(text)-len(open), i
		}
	}
	return f.value(open)
}

// appendKeys appends keys made of the result of an index.
func appendKeys(keys []string, v ref.Val) ([]string, error) {
	var it traits.Iterator
	switch v := v.(type) {
	case *listValue:
		it = v.Iterator()
	case traits.Lister:
		if texts, ok := v.Value().([]string); ok { // what split() makes
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
