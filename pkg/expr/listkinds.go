package expr

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Lists whose schema says that they are sets, or maps by some keys of their elements, are compared and added as such, as Kubernetes
// does: their order does not count, and nothing is in them twice.

// unordered reports whether the list is one of those.
func (s *shape) unordered() bool {
	return s != nil && s.of != nil && (s.of.ListType == "set" || s.of.ListType == "map")
}

// keyOf is what tells an element apart from the others. ok is false if it is not one that such a list can have.
func (s *shape) keyOf(elem ref.Val) (key string, ok bool) {
	if s.of.ListType == "set" {
		key, err := scalar(elem)
		return key, err == nil
	}
	m, ok := elem.(traits.Mapper)
	if !ok {
		return "", false
	}
	var all strings.Builder
	for _, name := range s.of.Keys {
		v, found := m.Find(types.String(name))
		text := ""
		if found {
			var err error
			if text, err = scalar(v); err != nil {
				return "", false
			}
			text = "=" + text
		}
		all.WriteString(text + "\x00")
	}
	return all.String(), true
}

// sameElements is equality of such a list with another one of the same size.
func (l *listValue) sameElements(other traits.Lister) ref.Val {
	byKey := make(map[string]ref.Val, len(l.items()))
	for _, item := range l.items() {
		elem := l.value(item)
		key, ok := l.shape.keyOf(elem)
		if !ok {
			return types.False
		}
		byKey[key] = elem
	}
	seen := make(map[string]bool, len(byKey))
	for it := other.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		key, ok := l.shape.keyOf(elem)
		if mine, found := byKey[key]; !ok || !found || types.Equal(mine, elem) != types.True {
			return types.False
		}
		seen[key] = true
	}
	return types.Bool(len(seen) == len(byKey))
}

// merge is such a list and those elements of the other that it does not have; of a map, the other's replace those of the same key.
func (l *listValue) merge(other traits.Lister) ref.Val {
	var merged []ref.Val
	at := make(map[string]int)
	for it := l.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		if key, ok := l.shape.keyOf(elem); ok {
			at[key] = len(merged)
		}
		merged = append(merged, elem)
	}
	for it := other.Iterator(); it.HasNext() == types.True; {
		elem := it.Next()
		key, ok := l.shape.keyOf(elem)
		if !ok {
			return types.WrapErr(wrong("an element has no key in a list that is a set or a map"))
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
