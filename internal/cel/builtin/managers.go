package builtin

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// managers is managers(object): metadata.managedFields, in its order.
func (in *Run) managers(args []ref.Val) ref.Val {
	object, _, err := jsonval.RawOf(args[0], &in.Meter)
	if err != nil {
		return types.WrapErr(err)
	}
	var all []ref.Val
	for entry := range object.Path("metadata", "managedFields").Elems() {
		fields := make(map[string]ref.Val)
		for _, key := range []string{"manager", "operation", "apiVersion", "subresource"} {
			fields[key] = types.String(entry.Get(key).Str())
		}
		if t, ok := jsonval.TimestampOf(entry.Get("time").Str()); ok && entry.Get("time") != "" {
			fields["time"] = types.Timestamp{Time: t}
		}
		fields["fields"] = types.NewStringList(types.DefaultTypeAdapter, in.managed(nil, "", entry.Get("fieldsV1")))
		all = append(all, typeset.NewRecord(fields))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// managed appends the paths of a set of fields: the fields that the manager has set itself, without
// their parents.
func (in *Run) managed(paths []string, path string, set rawjson.Value) []string {
	in.Meter.Charge(len(set) + len(path))
	fields := maps.Collect(set.Fields())
	if len(fields) == 0 && path != "" {
		return append(paths, path)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		kind, name, _ := strings.Cut(key, ":")
		inner := path
		switch kind {
		case ".": // the element itself
			if path != "" {
				paths = append(paths, path)
			}
			continue
		case "f":
			inner = fieldpath.Below(path, name)
		case "k":
			inner += keysOfElement(rawjson.Value(name))
		case "v":
			inner += "[=" + name + "]"
		default:
			inner += "[" + name + "]"
		}
		paths = in.managed(paths, inner, fields[key])
	}
	return paths
}

// keysOfElement writes {"name":"a"} as diff does: [name="a"].
func keysOfElement(keys rawjson.Value) string {
	if rawjson.Check(string(keys)) != nil {
		return "[" + strconv.Quote(string(keys)) + "]"
	}
	return fieldpath.Selector(keys, slices.Sorted(maps.Keys(maps.Collect(keys.Fields()))))
}
