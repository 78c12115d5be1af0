package jsonval

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// maxOutput is the largest size in bytes of the events of one evaluation together. A list of all
// pods in every event would fill the memory otherwise.
const maxOutput = 16 << 20

// Writer writes values of CEL as compact JSON without line breaks. Unchanged values of an object
// are copied as text. Keys of maps that the expression builds are sorted: CEL keeps no order for
// them.
type Writer struct {
	out  []byte
	room int // the largest length of out
}

// NewWriter returns a writer with room for the events of one evaluation.
func NewWriter() *Writer { return &Writer{room: maxOutput} }

// Take returns the written text and starts again with the remaining room.
func (w *Writer) Take() []byte {
	out := w.out
	*w = Writer{room: w.room - len(out)}
	return out
}

// Value writes a value as JSON.
func (w *Writer) Value(v ref.Val) error {
	if err := w.write(v); err != nil {
		return err
	}
	if len(w.out) > w.room {
		return celerr.TooMuch("more than 16 MiB of events from one evaluation")
	}
	return nil
}

func (w *Writer) write(v ref.Val) error {
	switch v := v.(type) {
	case *Map:
		return w.raw(v.Raw())
	case *List:
		return w.raw(v.Raw())
	case types.String:
		w.out = rawjson.AppendString(w.out, string(v))
	case types.Bool:
		w.out = strconv.AppendBool(w.out, bool(v))
	case types.Int:
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	case types.Uint:
		w.out = strconv.AppendUint(w.out, uint64(v), 10)
	case types.Double:
		return w.double(float64(v))
	case types.Null:
		w.out = append(w.out, "null"...)
	case types.Bytes:
		w.out = rawjson.AppendString(w.out, base64.StdEncoding.EncodeToString(v))
	case types.Timestamp:
		w.out = rawjson.AppendString(w.out, v.UTC().Format(time.RFC3339Nano))
	case types.Duration:
		w.out = rawjson.AppendString(w.out, strconv.FormatFloat(v.Seconds(), 'f', -1, 64)+"s")
	case *types.Optional:
		return w.Value(Unwrap(v))
	case traits.Mapper:
		return w.object(v)
	case traits.Lister:
		return w.array(v)
	default:
		return celerr.Wrong("a " + TypeName(v) + " cannot be written as JSON; convert it with string() or the like")
	}
	return nil
}

func (w *Writer) raw(v rawjson.Value) error {
	if len(w.out)+len(v) > w.room {
		return celerr.TooMuch("more than 16 MiB of events from one evaluation")
	}
	if strings.IndexByte(string(v), '\n') < 0 {
		w.out = append(w.out, v...)
		return nil
	}
	buf := bytes.NewBuffer(w.out)
	if err := json.Compact(buf, []byte(v)); err != nil {
		return celerr.Wrong("a part of the object is not JSON")
	}
	w.out = buf.Bytes()
	return nil
}

func (w *Writer) double(f float64) error {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return celerr.Wrong("an infinite number or NaN cannot be written as JSON")
	}
	text, err := json.Marshal(f)
	w.out = append(w.out, text...)
	return err
}

func (w *Writer) object(m traits.Mapper) error {
	fields := make(map[string]ref.Val)
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := Scalar(key)
		if err != nil {
			return celerr.Wrong("a " + TypeName(key) + " cannot be a key of a JSON object")
		}
		fields[name] = m.Get(key)
	}
	w.out = append(w.out, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = rawjson.AppendString(w.out, name)
		w.out = append(w.out, ':')
		if err := w.Value(fields[name]); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *Writer) array(l traits.Lister) error {
	w.out = append(w.out, '[')
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; first = false {
		if !first {
			w.out = append(w.out, ',')
		}
		if err := w.Value(it.Next()); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}
