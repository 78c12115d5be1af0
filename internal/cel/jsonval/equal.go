package jsonval

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// Equal reports whether a and b are the same value to CEL: the order of keys, white space and 1
// against 1.0 make no difference, and a field with null is an absent one. Absent equals absent
// only.
func Equal(a, b rawjson.Value) bool {
	if a == b {
		return true // equal texts are equal values
	}
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case rawjson.Object:
		return equalObjects(a, b)
	case rawjson.Array:
		return equalArrays(a, b)
	case rawjson.String:
		return a.Str() == b.Str()
	case rawjson.Number:
		return types.Equal(number(string(a)), number(string(b))) == types.True
	case rawjson.Bool, rawjson.Null, rawjson.Absent:
	}
	return false // the texts differ
}

func equalArrays(a, b rawjson.Value) bool {
	var others []rawjson.Value
	for other := range b.Elems() {
		others = append(others, other)
	}
	i := 0
	for elem := range a.Elems() {
		if i >= len(others) || !Equal(elem, others[i]) {
			return false
		}
		i++
	}
	return i == len(others)
}

// equalObjects compares the keys of both in parallel as long as they have the same order, which is
// usual, and searches the rest.
func equalObjects(a, b rawjson.Value) bool {
	type field struct {
		key   string
		value rawjson.Value
	}
	var others []field
	for key, value := range b.Fields() {
		if !value.IsNull() {
			others = append(others, field{key, value})
		}
	}
	var byKey map[string]rawjson.Value
	i := 0
	for key, value := range a.Fields() {
		if value.IsNull() {
			continue
		}
		if i >= len(others) {
			return false
		}
		if byKey == nil && others[i].key != key {
			byKey = make(map[string]rawjson.Value, len(others))
			for _, other := range others {
				byKey[other.key] = other.value
			}
		}
		other := others[i].value
		if byKey != nil {
			other = byKey[key]
		}
		if !Equal(value, other) {
			return false
		}
		i++
	}
	return i == len(others)
}

// Lists whose schema says that they are sets, or maps by some keys of their elements, are compared
// and added as such, as Kubernetes does: their order does not count, and they have no duplicates.

// Unordered reports whether the list is a set or a map.
func (s *TypeInfo) Unordered() bool {
	return s != nil && s.Schema != nil && (s.Schema.ListType == "set" || s.Schema.ListType == "map")
}

// keyOf returns the key of an element. ok is false if such a list cannot have the element.
func (s *TypeInfo) keyOf(elem ref.Val) (key string, ok bool) {
	if s.Schema.ListType == "set" {
		key, err := Scalar(elem)
		return key, err == nil
	}
	m, ok := elem.(traits.Mapper)
	if !ok {
		return "", false
	}
	var all strings.Builder
	for _, name := range s.Schema.Keys {
		v, found := m.Find(types.String(name))
		text := ""
		if found {
			var err error
			if text, err = Scalar(v); err != nil {
				return "", false
			}
			text = "=" + text
		}
		all.WriteString(text + "\x00")
	}
	return all.String(), true
}

// sameElements compares such a list with another one of the same size.
func (l *List) sameElements(other traits.Lister) ref.Val {
	byKey := make(map[string]ref.Val, len(l.items()))
	for _, item := range l.items() {
		elem := l.value(item)
		key, ok := l.info.keyOf(elem)
		if !ok {
			return types.False
		}
		byKey[key] = elem
	}
	seen := make(map[string]bool, len(byKey))
	for it := other.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		key, ok := l.info.keyOf(elem)
		if mine, found := byKey[key]; !ok || !found || types.Equal(mine, elem) != types.True {
			return types.False
		}
		seen[key] = true
	}
	return types.Bool(len(seen) == len(byKey))
}

// merge returns the union of such a list and another one; in a map, an element of the other list
// replaces the one with the same key.
func (l *List) merge(other traits.Lister) ref.Val {
	var merged []ref.Val
	at := make(map[string]int)
	for it := l.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		if key, ok := l.info.keyOf(elem); ok {
			at[key] = len(merged)
		}
		merged = append(merged, elem)
	}
	for it := other.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		key, ok := l.info.keyOf(elem)
		if !ok {
			return types.WrapErr(celerr.Wrong("an element has no key in a list that is a set or a map"))
		}
		if i, found := at[key]; found {
			merged[i] = elem
			continue
		}
		at[key] = len(merged)
		merged = append(merged, elem)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, merged)
}
