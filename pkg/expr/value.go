package expr

import (
	"reflect"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// meter bounds the work of one evaluation: the rounds of its loops, the calls that take long, and the bytes of JSON that it reads. It belongs to
// one evaluation and its goroutine.
type meter struct {
	left int
}

// charge takes n units of work, each about a nanosecond or a byte read. It ends the evaluation as cel-go itself does when the cost limit is reached: with a panic that
// cel.Program.Eval turns into an error.
func (m *meter) charge(n int) {
	if m.left -= n; m.left < 0 {
		//nolint:forbidigo // a value cannot return an error from everywhere; cel-go ends evaluations in this way
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "too much work"})
	}
}

// value returns v as a value of CEL. Maps and lists stay text; an absent value is null.
func (m *meter) value(v rawjson.Value) ref.Val {
	switch v.Kind() {
	case rawjson.Object:
		return &mapValue{open: string(v), meter: m}
	case rawjson.Array:
		return &listValue{open: string(v), meter: m}
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

// open is value for a text that may go on behind the value, whose end is not looked for if it is a map or list.
func (m *meter) open(text string) ref.Val {
	switch text[0] {
	case '{':
		return &mapValue{open: text, meter: m}
	case '[':
		return &listValue{open: text, meter: m}
	}
	return m.value(closed(text))
}

// number is an int where the text has neither fraction nor exponent and fits, a uint where only that fits, else a double.
func number(s string) ref.Val {
	for i := range len(s) {
		switch s[i] {
		case '.', 'e', 'E':
			return double(s)
		}
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return types.Uint(u)
	}
	return double(s)
}

func double(s string) ref.Val {
	f, _ := strconv.ParseFloat(s, 64) // out of range: the infinity of that sign
	return types.Double(f)
}

// standardList and standardMap are lazy values as cel-go's own, for the conversions that the libraries ask for seldom.
func standardList(l *listValue) ref.Val {
	vals := make([]ref.Val, 0, len(l.items()))
	for _, item := range l.items() {
		vals = append(vals, l.value(item))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

func standardMap(m *mapValue) ref.Val {
	vals := make(map[ref.Val]ref.Val)
	for key, field := range m.fields() {
		vals[types.String(key)] = m.value(key, field)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, vals)
}

// convert is ConvertToType of a map or list: to its own type, to type(), or an error.
func convert(v ref.Val, own, target ref.Type) ref.Val {
	switch target {
	case own:
		return v
	case types.TypeType:
		return own.(ref.Val)
	}
	return types.WrapErr(wrong("a " + own.TypeName() + " cannot be converted to " + target.TypeName()))
}

// isType reports whether the Go type that a library asks for is the one of v itself.
func isType(v any, want reflect.Type) bool {
	return want != reflect.TypeFor[any]() && reflect.TypeOf(v).AssignableTo(want)
}
