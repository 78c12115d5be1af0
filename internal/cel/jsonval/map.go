package jsonval

import (
	"iter"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Map is a JSON object as a map of CEL.
type Map struct {
	open  string // begins with the object
	meter *Meter
	Info  *TypeInfo // nil: not known
}

var (
	_ traits.Mapper   = (*Map)(nil)
	_ traits.Foldable = (*Map)(nil)
	_ traits.Zeroer   = (*Map)(nil)
)

// plain reports whether the value has no type, so that its equality is that of [Equal].
func (m *Map) plain() bool { return m.Info == nil || m.Info.kind == schema.Any && !m.Info.nulls }

func (m *Map) root() *Root {
	if m.Info == nil {
		return nil
	}
	return m.Info.root
}

// field returns the text that begins with the value of a field by its CEL name, and its type; "" if
// there is none, or null, see TypeInfo.hides.
func (m *Map) field(key string) (open string, s *TypeInfo) {
	name, s := m.Info.Inner(key)
	open = m.Locate(name)
	if open != "" && m.Info.hides(open) {
		open = ""
	}
	return open, s
}

// fields yields all fields, by their names in JSON.
func (m *Map) fields() iter.Seq2[string, rawjson.Value] {
	return func(yield func(string, rawjson.Value) bool) {
		for key, value := range m.Raw().Fields() {
			m.meter.Charge(elementWork)
			if !m.Info.hides(string(value)) && !yield(key, value) {
				return
			}
		}
	}
}

// value returns the value of a field.
func (m *Map) value(key string, field rawjson.Value) ref.Val {
	_, s := m.Info.Inner(key)
	return m.meter.Typed(string(field), s)
}

// Locate returns the text that begins with the value of this key, "" if there is none.
func (m *Map) Locate(key string) (open string) {
	if root := m.root(); root != nil {
		open, read := root.Locate(m.open, key)
		m.meter.Charge(read)
		return open
	}
	c := rawjson.Members(m.open)
	for {
		quoted, open, ok := c.Next()
		if !ok || rawjson.IsKey(quoted, key) {
			m.meter.Charge(c.Offset())
			return open
		}
	}
}

// Str returns the string at a path of keys, "" if there is none. It is not charged to the meter.
func (m *Map) Str(path ...string) string {
	open := m.open
	for _, key := range path {
		if open = rawjson.Member(open, key); open == "" {
			return ""
		}
	}
	return rawjson.Closed(open).Str()
}

// Child returns the value of a field. The fields of a whole object are made once per evaluation,
// and do not outlive it.
func (m *Map) Child(open string, s *TypeInfo) ref.Val {
	root := m.root()
	if root == nil || open[0] != '{' || s != nil && s.kind != schema.Object && s.kind != schema.Map {
		return m.meter.Typed(open, s)
	}
	for i := range root.n {
		f := &root.seen[i]
		if len(f.open) != len(open) {
			continue
		}
		if f.value.meter == nil {
			f.value = Map{open, m.meter, s}
		}
		return &f.value
	}
	return m.meter.Typed(open, s)
}

// Raw returns the text of the whole object.
func (m *Map) Raw() rawjson.Value {
	if m.root() != nil {
		return rawjson.Value(m.open)
	}
	raw := rawjson.Closed(m.open)
	m.meter.Charge(len(raw))
	return raw
}

// Find implements traits.Mapper. A key that is no string is not found, as in a Go map with string
// keys.
func (m *Map) Find(key ref.Val) (ref.Val, bool) {
	switch k := key.(type) {
	case types.String:
		if v, s := m.field(string(k)); v != "" {
			return m.Child(v, s), true
		}
	case *types.Err, *types.Unknown:
		return key, false
	}
	return nil, false
}

// Get implements traits.Indexer.
func (m *Map) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if found || v != nil {
		return v
	}
	return types.WrapErr(celerr.Absent("no such key"))
}

// Contains implements traits.Container: key in map.
func (m *Map) Contains(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

// Size implements traits.Sizer.
func (m *Map) Size() ref.Val {
	n := 0
	for range m.fields() {
		n++
	}
	return types.Int(n)
}

// IsZeroValue implements traits.Zeroer for optional.ofNonZeroValue.
func (m *Map) IsZeroValue() bool {
	for range m.fields() {
		return false
	}
	return true
}

// Iterator implements traits.Iterable: the keys, in the order of the text.
func (m *Map) Iterator() traits.Iterator {
	it := &iterator{}
	for key := range m.fields() {
		it.keys = append(it.keys, key)
	}
	return it
}

// Fold implements traits.Foldable for macros of two variables.
func (m *Map) Fold(f traits.Folder) {
	for key, field := range m.fields() {
		if !f.FoldEntry(types.String(key), m.value(key, field)) {
			return
		}
	}
}

// Equal implements ref.Val for maps of both kinds.
func (m *Map) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*Map); ok && (m.plain() && o.plain() || m.Raw() == o.Raw()) {
		return types.Bool(Equal(m.Raw(), o.Raw()))
	}
	o, ok := other.(traits.Mapper)
	if !ok {
		return types.False
	}
	if m.Size() != o.Size() {
		return types.False
	}
	for key, field := range m.fields() {
		v, found := o.Find(types.String(key))
		if !found || types.Equal(m.value(key, field), v) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (m *Map) ConvertToNative(want reflect.Type) (any, error) {
	if isType(m, want) {
		return m, nil
	}
	return standardMap(m).ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (m *Map) ConvertToType(t ref.Type) ref.Val { return Convert(m, types.MapType, t) }

// Type implements ref.Val.
func (m *Map) Type() ref.Type { return types.MapType }

// Value implements ref.Val. cel-go calls it before it takes a field of an object, and passes it to
// the field getter of [expr.typeSet].
func (m *Map) Value() any { return m }

// String hides the content: cel-go prints values in some of its errors.
func (m *Map) String() string { return "{…}" }

// Root remembers the positions of the fields of a whole object that were passed on the way to
// another one: metadata, spec and status are read again and again, and spec is long. If an object
// has more fields than there is room for, the others are searched again each time.
type Root struct {
	known  *TypeInfo // the type by its schema; nil: none
	info   TypeInfo  // the same, and these fields
	seen   [8]rootField
	n      int
	cursor rawjson.Cursor
}

type rootField struct {
	quoted, open string
	value        Map // made at its first use, if it is a map
}

// Object returns the object of a text with a type, for its first read.
func (r *Root) Object(text string, m *Meter, s *TypeInfo) *Map {
	r.known, r.info.root = s, r
	if s != nil {
		r.info.kind, r.info.Schema, r.info.fields = s.kind, s.Schema, s.fields
	}
	return &Map{text, m, &r.info}
}

// Passed records that a value inside of the value at an offset was read, at that depth: the values
// behind it are found faster from there.
func (r *Root) Passed(at, inner, depth int) {
	r.cursor.Passed(at, inner, depth)
}

// Locate is mapValue.find for the object of the text, and returns the number of bytes read.
func (r *Root) Locate(text, key string) (open string, read int) {
	for i := range r.n {
		if rawjson.IsKey(r.seen[i].quoted, key) {
			return r.seen[i].open, 0
		}
	}
	if r.n == 0 {
		r.cursor = rawjson.Members(text)
	}
	c := r.cursor
	start := c.Offset()
	for {
		quoted, open, ok := c.Next()
		if ok && r.n < len(r.seen) {
			r.seen[r.n] = rootField{quoted: quoted, open: open}
			r.n++
			r.cursor = c
		}
		if !ok || rawjson.IsKey(quoted, key) {
			return open, c.Offset() - start
		}
	}
}
