package expr

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"strings"

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

	fnSHA256     = "sha256"
	fnDiff       = "diff"
	fnManagers   = "managers"
	fnController = "controller"

	at = "@"
)

// Those that find objects of a source whose schema is known get a variable of the type of these, T, as one more first argument. It is
// put there before types are checked, and makes the result one of T.
func ourFunctions() []cel.EnvOption {
	str, dyn, param := cel.StringType, cel.DynType, cel.TypeParamType("T")
	differences := overload{result: cel.ListType(cel.ObjectType(differenceType)), args: []*cel.Type{param, param}}
	managers := overload{result: cel.ListType(cel.ObjectType(managerType)), args: []*cel.Type{param}}
	controller := overload{result: cel.ObjectType(controllerType), args: []*cel.Type{param}}
	return []cel.EnvOption{
		declare(fnChanged, overload{result: cel.BoolType, args: []*cel.Type{str}}),
		implement(fnChanged, (*evaluation).changed, overload{result: cel.BoolType, args: []*cel.Type{cel.IntType}}),
		declare(fnCount, overload{result: cel.IntType, args: []*cel.Type{str, dyn}}),
		implement(fnCount, (*evaluation).count, overload{result: cel.IntType, args: []*cel.Type{str, str, dyn}}),
		declare(fnLookup,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str, dyn}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str, dyn}}),
		implement(fnLookup, (*evaluation).lookup,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str, str, dyn}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str, str, dyn}}),
		declare(fnGet,
			overload{result: dyn, args: []*cel.Type{str, str, str}},
			overload{result: param, args: []*cel.Type{param, str, str, str}}),
		implement(fnGet, (*evaluation).get,
			overload{result: dyn, args: []*cel.Type{str, str, str}},
			overload{result: param, args: []*cel.Type{param, str, str, str}}),
		declare(fnList,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str}}),
		implement(fnList, (*evaluation).list,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str}}),
		cel.Function(fnSHA256,
			cel.Overload("sha256_deltarouter", []*cel.Type{str}, str, cel.UnaryBinding(digest)),
			cel.Overload("sha256_deltarouter_bytes", []*cel.Type{cel.BytesType}, str, cel.UnaryBinding(digest))),
		declare(fnDiff, differences), implement(fnDiff, (*evaluation).diff, differences),
		declare(fnManagers, managers), implement(fnManagers, (*evaluation).managers, managers),
		declare(fnController, controller), implement(fnController, (*evaluation).controller, controller),
	}
}

type overload struct {
	result *cel.Type
	args   []*cel.Type
}

// declare is the function as it is written.
func declare(name string, overloads ...overload) cel.EnvOption {
	var options []cel.FunctionOpt
	for i, o := range overloads {
		options = append(options, cel.Overload(name+"_deltarouter"+strings.Repeat("_typed", i), o.args, o.result))
	}
	return cel.Function(name, options...)
}

// implement is the function as it is evaluated.
func implement(name string, fn func(*evaluation, []ref.Val) ref.Val, overloads ...overload) cel.EnvOption {
	var options []cel.FunctionOpt
	for i, o := range overloads {
		binding := cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			in, ok := args[0].(*evaluation)
			if !ok {
				return types.WrapErr(wrong("not inside an evaluation"))
			}
			if in.cache == nil && asksCache(name) {
				return types.WrapErr(reasonError{"there are no other objects to look up here", ErrNoCache})
			}
			in.meter.charge(callCost * workPerCost)
			return fn(in, args[1+i:]) // the second overload has the type
		})
		options = append(options,
			cel.Overload(at+name+"_of"+strings.Repeat("_typed", i), append([]*cel.Type{cel.DynType}, o.args...), o.result, binding))
	}
	return cel.Function(at+name, options...)
}

// asksCache reports whether a function has no result without a cache. To controller an empty one is as good.
func asksCache(function string) bool {
	switch function {
	case fnLookup, fnCount, fnGet, fnList:
		return true
	}
	return false
}

// digest is sha256(text) and sha256(bytes).
func digest(v ref.Val) ref.Val {
	var sum [sha256.Size]byte
	switch v := v.(type) {
	case types.String:
		sum = sha256.Sum256([]byte(v))
	case types.Bytes:
		sum = sha256.Sum256(v)
	default:
		return noOverload(fnSHA256)
	}
	return types.String(hex.EncodeToString(sum[:]))
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
		return types.Bool(path.exists(in.delta.New, &in.meter))
	case event.Updated:
		return types.Bool(path.differs(in.delta.Old, in.delta.New, &in.meter))
	case event.Deleted, event.Deselected, event.Sync, event.Entered, event.Left:
	}
	return types.False
}

// lookup is lookup(index, value).
func (in *evaluation) lookup(args []ref.Val) ref.Val {
	value, err := canonical(args[2])
	if err != nil {
		return types.WrapErr(err)
	}
	return in.objects(text(args[0]), in.cache.Lookup(text(args[0]), text(args[1]), value))
}

// count is count(index, value).
func (in *evaluation) count(args []ref.Val) ref.Val {
	value, err := canonical(args[2])
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Int(in.cache.Count(text(args[0]), text(args[1]), value))
}

// get is get(source, namespace, name).
func (in *evaluation) get(args []ref.Val) ref.Val {
	return in.found(text(args[0]), in.cache.Get(text(args[0]), text(args[1]), text(args[2])))
}

// list is list(source).
func (in *evaluation) list(args []ref.Val) ref.Val {
	return in.objects(text(args[0]), in.cache.Lookup(text(args[0]), "", ""))
}

func (in *evaluation) objects(source string, objs []*event.Object) ref.Val {
	vals := make([]ref.Val, len(objs))
	in.meter.charge(len(objs) * (64 + 16*bits.Len(uint(len(objs))))) // they were sorted
	for i, obj := range objs {
		vals[i] = in.found(source, obj)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// text is an argument that the compiler has checked to be a string.
func text(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}
