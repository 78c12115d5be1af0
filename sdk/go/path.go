package deltarouter

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/sdk/go/internal/host"
)

// Value is the text of one JSON value, a part of a delta. It is empty if there is no such value.
// Like the other slices of a delta it is valid until the handler returns.
type Value []byte

// The objects of the host function field.
const (
	fieldOfObject = 0
	fieldOfOld    = 1
)

// Path returns a field of the object: d.Path("status.phase"). Dots separate the keys; `\.` is a dot
// in a key: d.Path(`metadata.labels.app\.kubernetes\.io/name`). The router finds the field, which
// is many times faster than to decode the object.
func (d Delta) Path(path string) Value { return d.field(fieldOfObject, d.Object, path) }

// OldPath is [Delta.Path] for the object before the change.
func (d Delta) OldPath(path string) Value { return d.field(fieldOfOld, d.OldObject, path) }

func (d Delta) field(which uint32, object []byte, path string) Value {
	place := host.Field(d.index, which, path)
	if place >= 0 {
		return object[place>>32:][:uint32(place):uint32(place)]
	}
	if place == host.NotFound {
		return nil
	}
	return Value(object).Path(path) // the host does not search
}

// Path follows keys through nested objects, see [Delta.Path].
func (v Value) Path(path string) Value {
	for more := true; more; {
		var key string
		key, path, more = nextKey(path)
		if v = member(v, key); v == nil {
			return nil
		}
	}
	return v
}

// nextKey returns the first key of a path, and the path behind it.
func nextKey(path string) (key, rest string, more bool) {
	end := strings.IndexAny(path, `.\`)
	if end < 0 || path[end] == '.' {
		return strings.Cut(path, ".")
	}
	b := []byte(path[:end])
	for i := end; i < len(path); i++ {
		switch c := path[i]; {
		case c == '.':
			return string(b), path[i+1:], true
		case c == '\\' && i+1 < len(path):
			i++
			b = append(b, path[i])
		default:
			b = append(b, c)
		}
	}
	return string(b), "", false
}

// Text returns the content of a string, or an empty text for any other value.
func (v Value) Text() (text string) {
	if len(v) >= 2 && v[0] == '"' {
		if raw := string(v[1 : len(v)-1]); strings.IndexByte(raw, '\\') < 0 {
			return raw
		}
		_ = v.Decode(&text)
	}
	return text
}

// Int returns a whole number. For any other value, and one that does not fit, ok is false and n 0.
func (v Value) Int() (n int64, ok bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}

// IsTrue reports whether the value is true.
func (v Value) IsTrue() bool { return string(v) == "true" }

// Items returns the elements of a list, or nothing for any other value.
func (v Value) Items() (all []Value) {
	for _, item := range elements(v) {
		all = append(all, Value(item))
	}
	return all
}

// Decode decodes the value into to like encoding/json.
func (v Value) Decode(to any) error { return json.Unmarshal(v, to) }
