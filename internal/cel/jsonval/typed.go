package jsonval

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Typed returns the value at the start of a text, of that type. A value that its schema does not
// allow is an error.
func (m *Meter) Typed(open string, s *TypeInfo) ref.Val {
	if s == nil || s.kind == schema.Any {
		return m.Open(open, s)
	}
	switch open[0] {
	case '{':
		if s.kind == schema.Object || s.kind == schema.Map {
			return &Map{open, m, s}
		}
	case '[':
		if s.kind == schema.List {
			return &List{open: open, meter: m, info: s}
		}
	case '"':
		return textOf(rawjson.Closed(open).Str(), s)
	case 't', 'f':
		if s.kind == schema.Bool {
			return types.Bool(open[0] == 't')
		}
	case 'n':
		if s.nullable {
			return types.NullValue
		}
	default:
		return numberOf(string(rawjson.Closed(open)), s)
	}
	return s.mismatch()
}

// mismatch returns an error that does not quote the value.
func (s *TypeInfo) mismatch() ref.Val {
	return types.WrapErr(celerr.Wrong("a value has another type than in the schema of the resource"))
}

func numberOf(text string, s *TypeInfo) ref.Val {
	switch v := number(text).(type) {
	case types.Int:
		switch s.kind {
		case schema.Double:
			return types.Double(v)
		case schema.Int, schema.IntOrString:
			return v
		default:
		}
	case types.Double:
		if s.kind == schema.Double {
			return v
		}
	case types.Uint:
		if s.kind == schema.Double {
			return types.Double(v)
		}
	}
	return s.mismatch()
}

func textOf(text string, s *TypeInfo) ref.Val {
	switch s.kind {
	case schema.String, schema.IntOrString:
		return types.String(text)
	case schema.Timestamp:
		if t, ok := TimestampOf(text); ok {
			return types.Timestamp{Time: t}
		}
	case schema.Date:
		if t, err := time.Parse(time.DateOnly, text); err == nil {
			return types.Timestamp{Time: t}
		}
	case schema.Duration:
		if d, ok := durationOf(text); ok {
			return types.Duration{Duration: d}
		}
	case schema.Bytes:
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			b, err = base64.URLEncoding.DecodeString(text)
		}
		if err == nil {
			return types.Bytes(b)
		}
	default:
	}
	return s.mismatch()
}

// TimestampOf parses a time as Kubernetes does: RFC 3339, also without a zone; an empty text is the
// epoch.
func TimestampOf(text string) (time.Time, bool) {
	if text == "" {
		return time.Unix(0, 0).UTC(), true
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05", text)
	}
	return t, err == nil
}

// durationOf parses the format duration as Kubernetes does: Go's form, or whole numbers with units
// up to weeks.
func durationOf(text string) (sum time.Duration, ok bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, true
	}
	for _, part := range regexp.MustCompile(`(\d+)\s*([A-Za-zµ]+)`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(part[1])
		if err != nil {
			return 0, false
		}
		if unit := unitOf(strings.ToLower(part[2])); unit > 0 {
			sum += time.Duration(n) * unit
			ok = true
		}
	}
	return sum, ok
}

// unitOf: of each unit's names the last may go on.
func unitOf(name string) time.Duration {
	switch {
	case name == "ns" || strings.HasPrefix(name, "nano"):
		return time.Nanosecond
	case name == "us" || name == "µs" || strings.HasPrefix(name, "micro"):
		return time.Microsecond
	case name == "ms" || strings.HasPrefix(name, "milli"):
		return time.Millisecond
	case name == "s" || strings.HasPrefix(name, "sec"):
		return time.Second
	case name == "m" || strings.HasPrefix(name, "min"):
		return time.Minute
	case name == "h" || name == "hr" || strings.HasPrefix(name, "hour"):
		return time.Hour
	case name == "d" || strings.HasPrefix(name, "day"):
		return 24 * time.Hour
	case name == "w" || name == "wk" || strings.HasPrefix(name, "week"):
		return 7 * 24 * time.Hour
	}
	return 0
}

// number returns an int if the text has neither fraction nor exponent and fits, a uint if only that
// fits, and otherwise a double.
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

// TypeInfo is the schema of a value in the form that reading needs. nil: no schema. It is
// immutable, except for the one of a root.
type TypeInfo struct {
	kind     schema.Kind
	nullable bool
	Schema   *schema.Type
	Elem     *TypeInfo // of a list or map
	// of an object: by name, and by the name as Kubernetes escapes it for CEL
	fields map[string]*fieldInfo
	root   *Root // of `object` and `oldObject`
	nulls  bool  // null is a value, see [EventData]
}

// EventData returns the type of data that an expression wrote: in contrast to objects, null in a
// field is a value, because emit writes it for an absent optional.
func EventData() *TypeInfo {
	s := &TypeInfo{kind: schema.Any, nulls: true}
	s.Elem = s
	return s
}

// fieldInfo is a field of an object.
type fieldInfo struct {
	name string // in JSON
	info *TypeInfo
}

// Inner returns the JSON name of a field by its CEL name, and its type.
func (s *TypeInfo) Inner(key string) (string, *TypeInfo) {
	switch {
	case s == nil:
	case s.fields != nil:
		if f := s.fields[key]; f != nil {
			return f.name, f.info
		}
	default:
		return key, s.Elem
	}
	return key, nil
}

// hides reports whether the value of a field or key counts as absent: null does, with and without a
// schema.
func (s *TypeInfo) hides(open string) bool { return open[0] == 'n' && (s == nil || !s.nulls) }

// CELNames returns the names of a field in CEL.
func CELNames(field string) []string {
	if escaped, ok := apiservercel.Escape(field); ok && escaped != field {
		return []string{field, escaped}
	}
	return []string{field}
}

// TypeInfos makes TypeInfos of types, one of each object's type.
type TypeInfos map[*schema.Type]*TypeInfo

// Of returns the TypeInfo of a schema; nil: it has none.
func (all TypeInfos) Of(t *schema.Type) *TypeInfo {
	if t == nil || t.Kind == schema.Any {
		return nil
	}
	if s, ok := all[t]; ok {
		return s
	}
	s := &TypeInfo{kind: t.Kind, nullable: t.Nullable, Schema: t}
	all[t] = s
	s.Elem = all.Of(t.Elem)
	if t.Kind != schema.Object {
		return s
	}
	s.fields = make(map[string]*fieldInfo, len(t.Fields))
	for name, f := range t.Fields {
		field := &fieldInfo{name, all.Of(f.Type)}
		for _, called := range CELNames(name) {
			s.fields[called] = field
		}
	}
	return s
}
