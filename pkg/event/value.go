package event

import "github.com/deltarouter/deltarouter/internal/rawjson"

// Value is the text of a JSON value, without white space around it, as in
//
//	phase := object.Raw().Path("status", "phase").Str()
//
// The empty Value is that of a field that is absent. Reading copies nothing, and does not fail.
//
//   - Kind returns its type, and IsNull and IsTrue compare it.
//   - Get and Path return a field of an object, or one below it.
//   - Fields and Elems iterate over an object and a list.
//   - Str returns a string without its quotes and escapes.
type Value = rawjson.Value

// Kind is the type of a [Value].
type Kind = rawjson.Kind

// The kinds of values. Absent is the kind of the empty Value.
const (
	AbsentValue Kind = rawjson.Absent
	NullValue   Kind = rawjson.Null
	BoolValue   Kind = rawjson.Bool
	NumberValue Kind = rawjson.Number
	StringValue Kind = rawjson.String
	ArrayValue  Kind = rawjson.Array
	ObjectValue Kind = rawjson.Object
)
