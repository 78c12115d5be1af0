package fingerprint

import (
	"encoding/base64"
	"strconv"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Placeholder stands for a text that is not known: in the values of data, which are base64, encoded
// so. It is another one where the present value is this one.
const Placeholder = "(unknown)"

// placeholders returns two placeholders for a text.
func placeholders(text string, encoded bool) [2]string {
	switch {
	case isTime(text):
		return [2]string{"1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"}
	case encoded:
		return [2]string{
			base64.StdEncoding.EncodeToString([]byte(Placeholder)), base64.StdEncoding.EncodeToString([]byte(Placeholder + "...")),
		}
	}
	return [2]string{Placeholder, Placeholder + "..."}
}

// unknown appends a placeholder with the kind of a value, and with another value.
func (r *recaller) unknown(v rawjson.Value, encoded bool) {
	switch v.Kind() {
	case rawjson.Object:
		r.b = append(r.b, '{')
		for name, value := range v.Fields() {
			r.name(name)
			r.unknown(value, encoded)
		}
		r.b = append(r.b, '}')
	case rawjson.Array:
		r.b = append(r.b, '[')
		for value := range v.Elems() {
			r.comma()
			r.unknown(value, encoded)
		}
		r.b = append(r.b, ']')
	case rawjson.String:
		other := placeholders(v.Str(), encoded)
		if v.Str() == other[0] {
			other[0] = other[1]
		}
		r.b = rawjson.AppendString(r.b, other[0])
	case rawjson.Number:
		if r.b = append(r.b, "-1"...); v == "-1" {
			r.b[len(r.b)-1] = '2'
		}
	case rawjson.Bool:
		r.b = strconv.AppendBool(r.b, !v.IsTrue())
	default:
		r.b = append(r.b, "null"...)
	}
}

// unknownMetadata appends the members of metadata behind the identity.
func (r *recaller) unknownMetadata(now rawjson.Value) {
	for name, v := range now.Fields() {
		switch {
		case isIdentity(name):
		case name == "creationTimestamp":
			r.member(name, v) // it never changes
		default:
			r.name(name)
			r.unknown(v, false)
		}
	}
}

// unknownRest appends the members of the whole object except for its identity and metadata.
func (r *recaller) unknownRest(now rawjson.Value) {
	for name, v := range now.Fields() {
		switch name {
		case "apiVersion", "kind", "metadata":
		default:
			r.name(name)
			r.unknown(v, name == "data")
		}
	}
}
