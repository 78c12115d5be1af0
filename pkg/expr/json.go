package expr

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

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// maxOutput is how many bytes the events of one evaluation may have together. A list of all pods in every event would fill the
// memory otherwise.
const maxOutput = 16 << 20

// writer writes values of CEL as compact JSON without line breaks. What comes unchanged from an object is copied as text. Keys of
// maps that the expression builds are sorted: CEL keeps no order for them.
type writer struct {
	out  []byte
	room int // how many bytes out may have
}

// take returns what was written and starts anew in the room that is left.
func (w *writer) take() []byte {
	out := w.out
	*w = writer{room: w.room - len(out)}
	return out
}

func (w *writer) value(v ref.Val) error {
	if err := w.write(v); err != nil {
		return err
	}
	if len(w.out) > w.room {
		return tooMuch("more than 16 MiB of events from one evaluation")
	}
	return nil
}

func (w *writer) write(v ref.Val) error {
	switch v := v.(type) {
	case *mapValue:
		return w.raw(v.raw())
	case *listValue:
		return w.raw(v.raw())
	case types.String:
		w.str(string(v))
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
		w.str(base64.StdEncoding.EncodeToString(v))
	case types.Timestamp:
		w.str(v.UTC().Format(time.RFC3339Nano))
	case types.Duration:
		w.str(strconv.FormatFloat(v.Seconds(), 'f', -1, 64) + "s")
	case *types.Optional:
		return w.value(unwrap(v))
	case traits.Mapper:
		return w.object(v)
	case traits.Lister:
		return w.array(v)
	default:
		return wrong("a " + typeName(v) + " cannot be written as JSON; convert it with string() or the like")
	}
	return nil
}

func (w *writer) raw(v rawjson.Value) error {
	if len(w.out)+len(v) > w.room {
		return tooMuch("more than 16 MiB of events from one evaluation")
	}
	if strings.IndexByte(string(v), '\n') < 0 {
		w.out = append(w.out, v...)
		return nil
	}
	buf := bytes.NewBuffer(w.out)
	if err := json.Compact(buf, []byte(v)); err != nil {
		return wrong("a part of the object is not JSON")
	}
	w.out = buf.Bytes()
	return nil
}

func (w *writer) double(f float64) error {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return wrong("an infinite number or NaN cannot be written as JSON")
	}
	text, err := json.Marshal(f)
	w.out = append(w.out, text...)
	return err
}

func (w *writer) object(m traits.Mapper) error {
	fields := make(map[string]ref.Val)
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := scalar(key)
		if err != nil {
			return wrong("a " + typeName(key) + " cannot be a key of a JSON object")
		}
		fields[name] = m.Get(key)
	}
	w.out = append(w.out, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.str(name)
		w.out = append(w.out, ':')
		if err := w.value(fields[name]); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *writer) array(l traits.Lister) error {
	w.out = append(w.out, '[')
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; first = false {
		if !first {
			w.out = append(w.out, ',')
		}
		if err := w.value(it.Next()); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

// str writes a string, escaping what JSON demands and no more. Invalid UTF-8 becomes U+FFFD.
func (w *writer) str(s string) {
	plain := true
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] < 0x80 && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		w.out = append(append(append(w.out, '"'), s...), '"')
		return
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always has a JSON text
	w.out = append(w.out, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
