package builtin

import (
	"maps"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/cost"
	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// maxDiffDepth is the depth at which diff stops: a deeper value counts as one value.
const maxDiffDepth = 64

// differ finds the differences between two values. Lists that are maps for Kubernetes are compared
// by their keys, lists that are sets as a whole and regardless of their order, all others by
// position.
type differ struct {
	meter *jsonval.Meter
	found []ref.Val
}

// diff is diff(old, new).
func (in *Run) diff(args []ref.Val) ref.Val {
	was, s, err := jsonval.RawOf(args[0], &in.Meter)
	if err != nil {
		return types.WrapErr(err)
	}
	is, other, err := jsonval.RawOf(args[1], &in.Meter)
	if err != nil {
		return types.WrapErr(err)
	}
	if s == nil {
		s = other
	}
	if was.IsNull() && is.Kind() == rawjson.Object {
		was = "{}"
	}
	if is.IsNull() && was.Kind() == rawjson.Object {
		is = "{}"
	}
	d := differ{meter: &in.Meter}
	d.compare("", was, is, s, 0)
	return types.NewRefValList(types.DefaultTypeAdapter, d.found)
}

// compare adds the differences, and returns false if there is no room for them. null counts as
// absent.
func (d *differ) compare(path string, was, is rawjson.Value, s *jsonval.TypeInfo, depth int) (ok bool) {
	if was.IsNull() {
		was = ""
	}
	if is.IsNull() {
		is = ""
	}
	if was == is {
		return true
	}
	d.meter.Charge(len(was) + len(is))
	mark := len(d.found)
	switch kind := was.Kind(); {
	case kind != is.Kind() || depth >= maxDiffDepth:
	case kind == rawjson.Object:
		ok = d.objects(path, was, is, s, depth+1)
	case kind == rawjson.Array && s.Unordered() && s.Schema.ListType == "set":
		ok = types.Equal(d.meter.Typed(string(was), s), d.meter.Typed(string(is), s)) == types.True
	case kind == rawjson.Array:
		ok = d.lists(path, was, is, s, depth+1)
	default:
		ok = jsonval.Equal(was, is)
	}
	if ok {
		return true
	}
	d.found = d.found[:mark]
	if len(d.found) == cost.MaxDifferences {
		return false
	}
	d.meter.Charge(64 + len(path))
	d.found = append(d.found, typeset.NewRecord(map[string]ref.Val{
		"path": types.String(path), "old": d.value(was, s), "new": d.value(is, s),
	}))
	return true
}

func (d *differ) value(v rawjson.Value, s *jsonval.TypeInfo) ref.Val {
	if v == "" {
		return types.NullValue
	}
	return d.meter.Typed(string(v), s)
}

// objects compares field by field, in the order of their names.
func (d *differ) objects(path string, was, is rawjson.Value, s *jsonval.TypeInfo, depth int) bool {
	before, after := maps.Collect(was.Fields()), maps.Collect(is.Fields())
	keys := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		_, inner := s.Inner(key)
		if !d.compare(fieldpath.Below(path, key), before[key], after[key], inner, depth) {
			return false
		}
	}
	return true
}

// lists compares element by element: the elements of the old list in its order, then the additional
// ones of the new list.
func (d *differ) lists(path string, was, is rawjson.Value, s *jsonval.TypeInfo, depth int) bool {
	names, before, ok1 := elements(was, s)
	more, after, ok2 := elements(is, s)
	if !ok1 || !ok2 {
		names, before, _ = elements(was, nil)
		more, after, _ = elements(is, nil)
	}
	for _, name := range more {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	var inner *jsonval.TypeInfo
	if s != nil {
		inner = s.Elem
	}
	for _, name := range names {
		if !d.compare(path+name, before[name], after[name], inner, depth) {
			return false
		}
	}
	return true
}

// elements returns the elements of a list by the last part of their paths, [0] or [name="a"], in
// order. ok is false if two have the same keys.
func elements(list rawjson.Value, s *jsonval.TypeInfo) (names []string, by map[string]rawjson.Value, ok bool) {
	by = make(map[string]rawjson.Value)
	for elem := range list.Elems() {
		name := "[" + strconv.Itoa(len(names)) + "]"
		if s.Unordered() {
			name = fieldpath.Selector(elem, s.Schema.Keys)
		}
		if _, twice := by[name]; twice || name == "" {
			return nil, nil, false
		}
		names, by[name] = append(names, name), elem
	}
	return names, by, true
}
