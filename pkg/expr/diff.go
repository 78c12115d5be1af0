package expr

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

const (
	// maxDifferences is how many entries diff makes at most: where there are more, a value that has many counts as one.
	maxDifferences = 1000
	// maxDiffDepth is how deep diff looks: what is deeper counts as one value.
	maxDiffDepth = 64
)

// differ finds what is different between two values. Lists that are maps for Kubernetes are compared by their keys, those that are sets
// as a whole and without regard to their order, all others place by place.
type differ struct {
	in    *evaluation
	found []ref.Val
}

// diff is diff(old, new).
func (in *evaluation) diff(args []ref.Val) ref.Val {
	was, s, err := in.textOf(args[0])
	if err != nil {
		return types.WrapErr(err)
	}
	is, other, err := in.textOf(args[1])
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
	d := differ{in: in}
	d.compare("", was, is, s, 0)
	return types.NewRefValList(types.DefaultTypeAdapter, d.found)
}

// textOf returns a value as JSON, and its shape. One that the expression has made is written.
func (in *evaluation) textOf(v ref.Val) (rawjson.Value, *shape, error) {
	switch v := unwrap(v).(type) {
	case *mapValue:
		if v.root() != nil {
			in.meter.charge(len(v.open))
			return rawjson.Value(v.open), in.program.shape, nil // a shape without the fields of this one object
		}
		return v.raw(), v.shape, nil
	case *listValue:
		return v.raw(), v.shape, nil
	default:
		w := writer{room: maxOutput}
		err := w.value(v)
		in.meter.charge(len(w.out))
		return rawjson.Value(w.out), nil, err
	}
}

// compare adds what is different, and returns false if there is no room for it. null is as good as absent.
func (d *differ) compare(path string, was, is rawjson.Value, s *shape, depth int) (ok bool) {
	if was.IsNull() {
		was = ""
	}
	if is.IsNull() {
		is = ""
	}
	if was == is {
		return true
	}
	d.in.meter.charge(len(was) + len(is))
	mark := len(d.found)
	switch kind := was.Kind(); {
	case kind != is.Kind() || depth >= maxDiffDepth:
	case kind == rawjson.Object:
		ok = d.objects(path, was, is, s, depth+1)
	case kind == rawjson.Array && s.unordered() && s.of.ListType == "set":
		ok = types.Equal(d.in.meter.shaped(string(was), s), d.in.meter.shaped(string(is), s)) == types.True
	case kind == rawjson.Array:
		ok = d.lists(path, was, is, s, depth+1)
	default:
		ok = equal(was, is)
	}
	if ok {
		return true
	}
	d.found = d.found[:mark]
	if len(d.found) == maxDifferences {
		return false
	}
	d.in.meter.charge(64 + len(path))
	d.found = append(d.found, newRecord(map[string]ref.Val{
		"path": types.String(path), "old": d.value(was, s), "new": d.value(is, s),
	}))
	return true
}

func (d *differ) value(v rawjson.Value, s *shape) ref.Val {
	if v == "" {
		return types.NullValue
	}
	return d.in.meter.shaped(string(v), s)
}

// objects compares field by field, in the order of their names.
func (d *differ) objects(path string, was, is rawjson.Value, s *shape, depth int) bool {
	before, after := maps.Collect(was.Fields()), maps.Collect(is.Fields())
	keys := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		_, inner := s.inner(key)
		if !d.compare(below(path, key), before[key], after[key], inner, depth) {
			return false
		}
	}
	return true
}

// lists compares element by element: those of the old list in its order, then what the new one has besides.
func (d *differ) lists(path string, was, is rawjson.Value, s *shape, depth int) bool {
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
	var inner *shape
	if s != nil {
		inner = s.elem
	}
	for _, name := range names {
		if !d.compare(path+name, before[name], after[name], inner, depth) {
			return false
		}
	}
	return true
}

// elements returns the elements of a list by what their paths end in, [0] or [name="a"], in order. ok is false if two have the same keys.
func elements(list rawjson.Value, s *shape) (names []string, by map[string]rawjson.Value, ok bool) {
	by = make(map[string]rawjson.Value)
	for elem := range list.Elems() {
		name := "[" + strconv.Itoa(len(names)) + "]"
		if s.unordered() {
			name = selectorOf(elem, s.of.Keys)
		}
		if _, twice := by[name]; twice || name == "" {
			return nil, nil, false
		}
		names, by[name] = append(names, name), elem
	}
	return names, by, true
}

// selectorOf names an element by its keys: [containerPort=80,protocol="TCP"]. Of keys that it does not have nothing is said.
func selectorOf(elem rawjson.Value, keys []string) string {
	var parts []string
	for _, key := range keys {
		v := elem.Get(key)
		if v.Kind() == rawjson.String {
			parts = append(parts, key+"="+strconv.Quote(v.Str()))
		} else if v != "" {
			parts = append(parts, key+"="+string(v))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, ",") + "]"
}
