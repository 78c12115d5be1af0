// Package jsonval has values of CEL that read the JSON text of an object.
//
// Values are not unmarshalled: a [Map] or [List] is a text that begins with it, and a field is
// searched when it is used. If the schema of an object is known, a [TypeInfo] has the types of its
// values. All reads are charged to a [Meter].
package jsonval

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Value returns v as a value of CEL. Maps and lists stay text; an absent value is null.
func (m *Meter) Value(v rawjson.Value) ref.Val {
	switch v.Kind() {
	case rawjson.Object:
		return &Map{open: string(v), meter: m}
	case rawjson.Array:
		return &List{open: string(v), meter: m}
	case rawjson.String:
		return types.String(v.Str())
	case rawjson.Number:
		return number(string(v))
	case rawjson.Bool:
		return types.Bool(v.IsTrue())
	case rawjson.Absent, rawjson.Null:
	}
	return types.NullValue
}

// Open is Value for a text that may continue behind the value, with a type of kind schema.Any, or
// nil. The end of a map or list is not searched.
func (m *Meter) Open(text string, s *TypeInfo) ref.Val {
	switch text[0] {
	case '{':
		return &Map{open: text, meter: m, Info: s}
	case '[':
		return &List{open: text, meter: m, info: s}
	}
	return m.Value(rawjson.Closed(text))
}

// RawOf returns a value as JSON, and its type. A value that the expression has made is written.
func RawOf(v ref.Val, m *Meter) (rawjson.Value, *TypeInfo, error) {
	switch v := Unwrap(v).(type) {
	case *Map:
		if root := v.root(); root != nil {
			m.Charge(len(v.open))
			// a type without the fields of this one object
			return rawjson.Value(v.open), root.known, nil
		}
		return v.Raw(), v.Info, nil
	case *List:
		return v.Raw(), v.info, nil
	default:
		w := NewWriter()
		err := w.Value(v)
		m.Charge(len(w.out))
		return rawjson.Value(w.out), nil, err
	}
}

// standardList and standardMap make cel-go's own values of lazy ones, for rare conversions of the
// libraries.
func standardList(l *List) ref.Val {
	vals := make([]ref.Val, 0, len(l.items()))
	for _, item := range l.items() {
		vals = append(vals, l.value(item))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

func standardMap(m *Map) ref.Val {
	vals := make(map[ref.Val]ref.Val)
	for key, field := range m.fields() {
		vals[types.String(key)] = m.value(key, field)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, vals)
}

// Convert is ConvertToType of a map or list: to its own type, to type(), or an error.
func Convert(v ref.Val, own, target ref.Type) ref.Val {
	switch target {
	case own:
		return v
	case types.TypeType:
		return own.(ref.Val)
	}
	return types.WrapErr(celerr.Wrong("a " + own.TypeName() + " cannot be converted to " + target.TypeName()))
}

// isType reports whether a library requests the Go type of v itself.
func isType(v any, want reflect.Type) bool {
	return want != reflect.TypeFor[any]() && reflect.TypeOf(v).AssignableTo(want)
}
