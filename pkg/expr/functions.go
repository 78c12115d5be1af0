package expr

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Our functions come in pairs: the one that is written in expressions is only declared, and the linker (link.go) replaces it by the
// one with an @, which gets the evaluation as its first argument and its source and index taken apart.
const (
	fnChanged = "changed"
	fnLookup  = "lookup"
	fnCount   = "count"
	fnGet     = "get"
	fnList    = "list"
	at        = "@"
)

func ourFunctions() []cel.EnvOption {
	str, dyn, objects := cel.StringType, cel.DynType, cel.ListType(cel.DynType)
	declare := func(name string, result *cel.Type, args ...*cel.Type) cel.EnvOption {
		return cel.Function(name, cel.Overload(name+"_deltarouter", args, result))
	}
	implement := func(name string, result *cel.Type, fn func(*evaluation, []ref.Val) ref.Val, args ...*cel.Type) cel.EnvOption {
		return cel.Function(at+name, cel.Overload(at+name, append([]*cel.Type{dyn}, args...), result,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val {
				in, ok := args[0].(*evaluation)
				if !ok {
					return types.WrapErr(wrong("not inside an evaluation"))
				}
				if in.cache == nil && name != fnChanged {
					return types.WrapErr(wrong("there are no other objects to look up here"))
				}
				return fn(in, args[1:])
			})))
	}
	return []cel.EnvOption{
		declare(fnChanged, cel.BoolType, str), implement(fnChanged, cel.BoolType, (*evaluation).changed, cel.IntType),
		declare(fnLookup, objects, str, dyn), implement(fnLookup, objects, (*evaluation).lookup, str, str, dyn),
		declare(fnCount, cel.IntType, str, dyn), implement(fnCount, cel.IntType, (*evaluation).count, str, str, dyn),
		declare(fnGet, dyn, str, str, str), implement(fnGet, dyn, (*evaluation).get, str, str, str),
		declare(fnList, objects, str), implement(fnList, objects, (*evaluation).list, str),
	}
}

// changed is changed(path).
func (in *evaluation) changed(args []ref.Val) ref.Val {
	n, ok := args[0].(types.Int)
	if !ok || in.delta == nil {
		return types.False
	}
	path := in.program.paths[n]
	switch in.delta.Op {
	case event.Added:
		return types.Bool(path.in(in.delta.New) != "")
	case event.Updated:
		was, is := path.in(in.delta.Old), path.in(in.delta.New)
		in.meter.charge(len(was) + len(is))
		return types.Bool(!equal(was, is))
	case event.Deleted, event.Deselected, event.Sync:
	}
	return types.False
}

// lookup is lookup(index, value).
func (in *evaluation) lookup(args []ref.Val) ref.Val {
	value, err := scalar(args[2])
	if err != nil {
		return types.WrapErr(err)
	}
	return in.objects(in.cache.Lookup(text(args[0]), text(args[1]), value))
}

// count is count(index, value).
func (in *evaluation) count(args []ref.Val) ref.Val {
	value, err := scalar(args[2])
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Int(in.cache.Count(text(args[0]), text(args[1]), value))
}

// get is get(source, namespace, name).
func (in *evaluation) get(args []ref.Val) ref.Val {
	return in.root(in.cache.Get(text(args[0]), text(args[1]), text(args[2])))
}

// list is list(source).
func (in *evaluation) list(args []ref.Val) ref.Val {
	return in.objects(in.cache.Lookup(text(args[0]), "", ""))
}

func (in *evaluation) objects(objs []*event.Object) ref.Val {
	vals := make([]ref.Val, len(objs))
	in.meter.charge(64 * len(objs))
	for i, obj := range objs {
		vals[i] = in.root(obj)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// text is an argument that the compiler has checked to be a string.
func text(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}
