package expr

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// managers is managers(object): metadata.managedFields, in its order.
func (in *evaluation) managers(args []ref.Val) ref.Val {
	object, _, err := in.textOf(args[0])
	if err != nil {
		return types.WrapErr(err)
	}
	var all []ref.Val
	for entry := range object.Path("metadata", "managedFields").Elems() {
		fields := make(map[string]ref.Val)
		for _, key := range []string{"manager", "operation", "apiVersion", "subresource"} {
			fields[key] = types.String(entry.Get(key).Str())
		}
		if t, ok := timestampOf(entry.Get("time").Str()); ok && entry.Get("time") != "" {
			fields["time"] = types.Timestamp{Time: t}
		}
		fields["fields"] = types.NewStringList(types.DefaultTypeAdapter, in.managed(nil, "", entry.Get("fieldsV1")))
		all = append(all, newRecord(fields))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// managed appends the paths of a set of fields: those that the manager has set themselves, not what they stand in.
func (in *evaluation) managed(paths []string, path string, set rawjson.Value) []string {
	in.meter.charge(len(set) + len(path))
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
			inner = below(path, name)
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
	return selectorOf(keys, slices.Sorted(maps.Keys(maps.Collect(keys.Fields()))))
}

// managed refuses managers of objects that are known to be kept without managedFields.
func (l *linker) managed(u unit, e ast.Expr) {
	arg := e.AsCall().Args()[0]
	var sources []string
	switch {
	case arg.Kind() == ast.IdentKind && (arg.AsIdent() == nameObject || arg.AsIdent() == nameOldObject):
		sources = l.of
	case arg.Kind() == ast.CallKind && arg.AsCall().FunctionName() == fnGet:
		args := arg.AsCall().Args()
		if source, ok := literal(args[len(args)-arity(fnGet)]); ok {
			sources = []string{source}
		}
	}
	for _, source := range sources {
		if _, known := l.env.sources[source]; known && !l.env.managedFields[source] {
			l.problem(u, e, "source %q does not keep managedFields; give it managedFields: true", source)
			return
		}
	}
}
