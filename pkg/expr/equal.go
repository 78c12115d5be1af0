package expr

import (
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// equal reports whether a and b are the same value to CEL: the order of keys, white space and 1 against 1.0 make no difference.
// Absent equals absent only.
func equal(a, b rawjson.Value) bool {
	if a == b {
		return true // the text is the same, so is the value
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
	return false // their texts differ
}

func equalArrays(a, b rawjson.Value) bool {
	var others []rawjson.Value
	for other := range b.Elems() {
		others = append(others, other)
	}
	i := 0
	for elem := range a.Elems() {
		if i >= len(others) || !equal(elem, others[i]) {
			return false
		}
		i++
	}
	return i == len(others)
}

// equalObjects takes the keys of both in turn as long as they stand in the same order, which is usual, and looks up the rest.
func equalObjects(a, b rawjson.Value) bool {
	type field struct {
		key   string
		value rawjson.Value
	}
	var others []field
	for key, value := range b.Fields() {
		others = append(others, field{key, value})
	}
	var byKey map[string]rawjson.Value
	i := 0
	for key, value := range a.Fields() {
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
		if !equal(value, other) {
			return false
		}
		i++
	}
	return i == len(others)
}
