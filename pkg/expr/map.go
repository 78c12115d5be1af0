package expr

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// mapValue is a JSON object as a map of CEL. It is comparable, because cel-go uses values as keys of Go maps.
type mapValue struct {
	open  string // begins with the object
	meter *meter
	root  *rootFields // set for `object` and `oldObject`
}

var (
	_ traits.Mapper   = mapValue{}
	_ traits.Foldable = mapValue{}
	_ traits.Zeroer   = mapValue{}
)

// rootFields remembers the fields of a whole object that were passed on the way to another one: metadata, spec and status are asked
// for again and again, and spec is long. An object with more fields than there is room for is read anew each time.
type rootFields struct {
	seen   [8]rootField
	n      int
	cursor cursor
}

type rootField struct{ quoted, open string }

// find returns the text that begins with the value of this key, "" if there is none.
func (m mapValue) find(key string) (open string) {
	c := cursor{text: m.open}
	root := m.root
	if root != nil {
		for i := range root.n {
			if isKey(root.seen[i].quoted, key) {
				return root.seen[i].open
			}
		}
		root.cursor.text = m.open
		c = root.cursor
	}
	start := c.at
	for {
		quoted, open, ok := c.next()
		if ok && root != nil && root.n < len(root.seen) {
			root.seen[root.n] = rootField{quoted, open}
			root.n++
			root.cursor = c
		}
		if !ok || isKey(quoted, key) {
			m.meter.charge(c.at - start)
			return open
		}
	}
}

// raw is the text of the whole object.
func (m mapValue) raw() rawjson.Value {
	if m.root != nil {
		return rawjson.Value(m.open)
	}
	raw := closed(m.open)
	m.meter.charge(len(raw))
	return raw
}

// Find implements traits.Mapper. A key that is no string is not found, as in a Go map with string keys.
func (m mapValue) Find(key ref.Val) (ref.Val, bool) {
	switch k := key.(type) {
	case types.String:
		if v := m.find(string(k)); v != "" {
			return m.meter.open(v), true
		}
	case *types.Err, *types.Unknown:
		return key, false
	}
	return nil, false
}

// Get implements traits.Indexer.
func (m mapValue) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if found || v != nil {
		return v
	}
	return types.WrapErr(absent("no such key"))
}

// Contains implements traits.Container: key in map.
func (m mapValue) Contains(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

// Size implements traits.Sizer.
func (m mapValue) Size() ref.Val {
	n := 0
	for range m.raw().Fields() {
		n++
	}
	return types.Int(n)
}

// IsZeroValue implements traits.Zeroer for optional.ofNonZeroValue.
func (m mapValue) IsZeroValue() bool {
	c := cursor{text: m.open}
	_, _, ok := c.next()
	return !ok
}

// Iterator implements traits.Iterable: the keys, in the order of the text.
func (m mapValue) Iterator() traits.Iterator {
	it := &iterator{}
	for key := range m.raw().Fields() {
		it.keys = append(it.keys, key)
	}
	return it
}

// Fold implements traits.Foldable for macros of two variables.
func (m mapValue) Fold(f traits.Folder) {
	for key, field := range m.raw().Fields() {
		if !f.FoldEntry(types.String(key), m.meter.value(field)) {
			return
		}
	}
}

// Equal implements ref.Val for maps of both kinds.
func (m mapValue) Equal(other ref.Val) ref.Val {
	if o, ok := other.(mapValue); ok {
		return types.Bool(equal(m.raw(), o.raw()))
	}
	o, ok := other.(traits.Mapper)
	if !ok {
		return types.False
	}
	if m.Size() != o.Size() {
		return types.False
	}
	for key, field := range m.raw().Fields() {
		v, found := o.Find(types.String(key))
		if !found || types.Equal(m.meter.value(field), v) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (m mapValue) ConvertToNative(want reflect.Type) (any, error) {
	if isType(m, want) {
		return m, nil
	}
	return standardMap(m).ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (m mapValue) ConvertToType(t ref.Type) ref.Val { return convert(m, types.MapType, t) }

// Type implements ref.Val.
func (m mapValue) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m mapValue) Value() any { return standardMap(m).Value() }

// String hides the content: cel-go prints values in some of its errors.
func (m mapValue) String() string { return "{…}" }
