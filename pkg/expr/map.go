package expr

import (
	"iter"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// mapValue is a JSON object as a map of CEL.
type mapValue struct {
	open  string // begins with the object
	meter *meter
	shape *shape // nil: not known
}

var (
	_ traits.Mapper   = (*mapValue)(nil)
	_ traits.Foldable = (*mapValue)(nil)
	_ traits.Zeroer   = (*mapValue)(nil)
)

// rootFields remembers the fields of a whole object that were passed on the way to another one: metadata, spec and status are asked
// for again and again, and spec is long. An object with more fields than there is room for is read anew each time.
type rootFields struct {
	shape  shape // of the object: what its schema says, and these fields
	seen   [8]rootField
	n      int
	cursor cursor
}

type rootField struct {
	quoted, open string
	value        mapValue // made at its first use, if it is a map
}

// plain reports whether nothing is known of the value, so that it is equal to another if the JSON is.
func (m *mapValue) plain() bool { return m.shape == nil || m.shape.kind == schema.Any }

func (m *mapValue) root() *rootFields {
	if m.shape == nil {
		return nil
	}
	return m.shape.root
}

// field returns the text that begins with the value of what CEL calls key, and its shape; "" if there is none, or null where that
// means none.
func (m *mapValue) field(key string) (open string, s *shape) {
	name, s := m.shape.inner(key)
	open = m.find(name)
	if open != "" && m.shape.hides(open) {
		open = ""
	}
	return open, s
}

// fields yields what there is, by the names in JSON.
func (m *mapValue) fields() iter.Seq2[string, rawjson.Value] {
	return func(yield func(string, rawjson.Value) bool) {
		for key, value := range m.raw().Fields() {
			m.meter.charge(elementWork)
			if !m.shape.hides(string(value)) && !yield(key, value) {
				return
			}
		}
	}
}

// value is what a field is.
func (m *mapValue) value(key string, field rawjson.Value) ref.Val {
	_, s := m.shape.inner(key)
	return m.meter.shaped(string(field), s)
}

// find returns the text that begins with the value of this key, "" if there is none.
func (m *mapValue) find(key string) (open string) {
	if root := m.root(); root != nil {
		open, read := root.find(m.open, key)
		m.meter.charge(read)
		return open
	}
	c := cursor{text: m.open}
	for {
		quoted, open, ok := c.next()
		if !ok || isKey(quoted, key) {
			m.meter.charge(c.at)
			return open
		}
	}
}

// find is mapValue.find for the object that the text is, and how many bytes were read.
func (r *rootFields) find(text, key string) (open string, read int) {
	for i := range r.n {
		if isKey(r.seen[i].quoted, key) {
			return r.seen[i].open, 0
		}
	}
	r.cursor.text = text
	c := r.cursor
	start := c.at
	for {
		quoted, open, ok := c.next()
		if ok && r.n < len(r.seen) {
			r.seen[r.n] = rootField{quoted: quoted, open: open}
			r.n++
			r.cursor = c
		}
		if !ok || isKey(quoted, key) {
			return open, c.at - start
		}
	}
}

// child is the value of a field. Those of a whole object are made once for an evaluation, which they do not outlive.
func (m *mapValue) child(open string, s *shape) ref.Val {
	root := m.root()
	if root == nil || open[0] != '{' || s != nil && s.kind != schema.Object && s.kind != schema.Map {
		return m.meter.shaped(open, s)
	}
	for i := range root.n {
		f := &root.seen[i]
		if len(f.open) != len(open) {
			continue
		}
		if f.value.meter == nil {
			f.value = mapValue{open, m.meter, s}
		}
		return &f.value
	}
	return m.meter.shaped(open, s)
}

// raw is the text of the whole object.
func (m *mapValue) raw() rawjson.Value {
	if m.root() != nil {
		return rawjson.Value(m.open)
	}
	raw := closed(m.open)
	m.meter.charge(len(raw))
	return raw
}

// Find implements traits.Mapper. A key that is no string is not found, as in a Go map with string keys.
func (m *mapValue) Find(key ref.Val) (ref.Val, bool) {
	switch k := key.(type) {
	case types.String:
		if v, s := m.field(string(k)); v != "" {
			return m.child(v, s), true
		}
	case *types.Err, *types.Unknown:
		return key, false
	}
	return nil, false
}

// Get implements traits.Indexer.
func (m *mapValue) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if found || v != nil {
		return v
	}
	return types.WrapErr(absent("no such key"))
}

// Contains implements traits.Container: key in map.
func (m *mapValue) Contains(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

// Size implements traits.Sizer.
func (m *mapValue) Size() ref.Val {
	n := 0
	for range m.fields() {
		n++
	}
	return types.Int(n)
}

// IsZeroValue implements traits.Zeroer for optional.ofNonZeroValue.
func (m *mapValue) IsZeroValue() bool {
	for range m.fields() {
		return false
	}
	return true
}

// Iterator implements traits.Iterable: the keys, in the order of the text.
func (m *mapValue) Iterator() traits.Iterator {
	it := &iterator{}
	for key := range m.fields() {
		it.keys = append(it.keys, key)
	}
	return it
}

// Fold implements traits.Foldable for macros of two variables.
func (m *mapValue) Fold(f traits.Folder) {
	for key, field := range m.fields() {
		if !f.FoldEntry(types.String(key), m.value(key, field)) {
			return
		}
	}
}

// Equal implements ref.Val for maps of both kinds.
func (m *mapValue) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*mapValue); ok && (m.plain() && o.plain() || m.raw() == o.raw()) {
		return types.Bool(equal(m.raw(), o.raw()))
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
func (m *mapValue) ConvertToNative(want reflect.Type) (any, error) {
	if isType(m, want) {
		return m, nil
	}
	return standardMap(m).ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (m *mapValue) ConvertToType(t ref.Type) ref.Val { return convert(m, types.MapType, t) }

// Type implements ref.Val.
func (m *mapValue) Type() ref.Type { return types.MapType }

// Value implements ref.Val. cel-go asks for it before it takes a field of an object, and hands it to what [typeSet] gave it for that.
func (m *mapValue) Value() any { return m }

// String hides the content: cel-go prints values in some of its errors.
func (m *mapValue) String() string { return "{…}" }
