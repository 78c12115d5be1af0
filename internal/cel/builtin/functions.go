// Package builtin has our own functions: they look up other objects, compare values, and make the
// event of an emit.
package builtin

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/cost"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Functions declares our functions in their written and in their evaluated form.
//
// Functions that find objects of a source with a known schema get an additional first argument, a
// variable of the type of these objects, T. It is inserted before types are checked, and makes the
// result one of T.
func Functions() []cel.EnvOption {
	str, dyn, param := cel.StringType, cel.DynType, cel.TypeParamType("T")
	differences := overload{result: cel.ListType(cel.ObjectType(typeset.DifferenceType)), args: []*cel.Type{param, param}}
	managers := overload{result: cel.ListType(cel.ObjectType(typeset.ManagerType)), args: []*cel.Type{param}}
	controller := overload{result: cel.ObjectType(typeset.ControllerType), args: []*cel.Type{param}}
	return []cel.EnvOption{
		declare(syntax.FuncChanged, overload{result: cel.BoolType, args: []*cel.Type{str}}),
		implement(syntax.FuncChanged, (*Run).changed, overload{result: cel.BoolType, args: []*cel.Type{cel.IntType}}),
		declare(syntax.FuncCount, overload{result: cel.IntType, args: []*cel.Type{str, dyn}}),
		implement(syntax.FuncCount, (*Run).count, overload{result: cel.IntType, args: []*cel.Type{str, str, dyn}}),
		declare(syntax.FuncLookup,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str, dyn}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str, dyn}}),
		implement(syntax.FuncLookup, (*Run).lookup,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str, str, dyn}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str, str, dyn}}),
		declare(syntax.FuncLookupMax,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str, dyn, cel.IntType}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str, dyn, cel.IntType}}),
		implement(syntax.FuncLookupMax, (*Run).lookup,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str, str, dyn, cel.IntType}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str, str, dyn, cel.IntType}}),
		declare(syntax.FuncGet,
			overload{result: dyn, args: []*cel.Type{str, str, str}},
			overload{result: param, args: []*cel.Type{param, str, str, str}}),
		implement(syntax.FuncGet, (*Run).get,
			overload{result: dyn, args: []*cel.Type{str, str, str}},
			overload{result: param, args: []*cel.Type{param, str, str, str}}),
		declare(syntax.FuncList,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str}}),
		implement(syntax.FuncList, (*Run).list,
			overload{result: cel.ListType(dyn), args: []*cel.Type{str}},
			overload{result: cel.ListType(param), args: []*cel.Type{param, str}}),
		cel.Function(syntax.FuncSHA256,
			cel.Overload("sha256_deltarouter", []*cel.Type{str}, str, cel.UnaryBinding(digest)),
			cel.Overload("sha256_deltarouter_bytes", []*cel.Type{cel.BytesType}, str, cel.UnaryBinding(digest))),
		declare(syntax.FuncDiff, differences), implement(syntax.FuncDiff, (*Run).diff, differences),
		declare(syntax.FuncManagers, managers), implement(syntax.FuncManagers, (*Run).managers, managers),
		declare(syntax.FuncController, controller), implement(syntax.FuncController, (*Run).controller, controller),
	}
}

type overload struct {
	result *cel.Type
	args   []*cel.Type
}

// declare returns the written form of a function.
func declare(name string, overloads ...overload) cel.EnvOption {
	var options []cel.FunctionOpt
	for i, o := range overloads {
		options = append(options, cel.Overload(name+"_deltarouter"+strings.Repeat("_typed", i), o.args, o.result))
	}
	return cel.Function(name, options...)
}

// implement returns the evaluated form of a function.
func implement(name string, fn func(*Run, []ref.Val) ref.Val, overloads ...overload) cel.EnvOption {
	var options []cel.FunctionOpt
	for i, o := range overloads {
		binding := cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			in, ok := args[0].(*Run)
			if !ok {
				return types.WrapErr(celerr.Wrong("not inside an evaluation"))
			}
			if in.Cache == nil && asksCache(name) {
				return types.WrapErr(celerr.Reason{Text: "there are no other objects to look up here", Class: celerr.ErrNoCache})
			}
			in.Meter.Charge(cost.CallCost * cost.WorkPerCost)
			return fn(in, args[1+i:]) // the second overload has the type
		})
		options = append(options,
			cel.Overload(syntax.Prefix+name+"_of"+strings.Repeat("_typed", i), append([]*cel.Type{cel.DynType}, o.args...), o.result, binding))
	}
	return cel.Function(syntax.Prefix+name, options...)
}

// asksCache reports whether a function has no result without a cache. controller treats a missing
// cache as an empty one.
func asksCache(function string) bool {
	switch function {
	case syntax.FuncLookup, syntax.FuncLookupMax, syntax.FuncCount, syntax.FuncGet, syntax.FuncList:
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
		return celerr.NoOverload(syntax.FuncSHA256)
	}
	return types.String(hex.EncodeToString(sum[:]))
}

// changed is changed(path).
func (in *Run) changed(args []ref.Val) ref.Val {
	n, ok := args[0].(types.Int)
	if !ok || in.Delta == nil {
		return types.False
	}
	path := in.Paths[n]
	switch in.Delta.Op {
	case event.Added:
		return types.Bool(path.Exists(in.Delta.New, &in.Meter))
	case event.Updated:
		return types.Bool(path.Differs(in.Delta.Old, in.Delta.New, &in.Meter))
	case event.Deleted, event.Deselected, event.Sync, event.Entered, event.Left:
	}
	return types.False
}

// lookup is lookup(index, value) and lookup(index, value, max).
func (in *Run) lookup(args []ref.Val) ref.Val {
	value, err := jsonval.Canonical(args[2])
	if err != nil {
		return types.WrapErr(err)
	}
	found := in.Cache.Lookup(text(args[0]), text(args[1]), value)
	if len(args) > 3 {
		most, ok := args[3].(types.Int)
		if !ok || most < 1 {
			return types.WrapErr(celerr.Wrong("the third argument of lookup() is the largest number of results: 1 or more"))
		}
		if most < types.Int(len(found)) {
			in.Meter.Charge(sortWork(len(found)) - sortWork(int(most)))
			found = found[:most]
		}
	}
	return in.objects(text(args[0]), found)
}

// count is count(index, value).
func (in *Run) count(args []ref.Val) ref.Val {
	value, err := jsonval.Canonical(args[2])
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Int(in.Cache.Count(text(args[0]), text(args[1]), value))
}

// get is get(source, namespace, name).
func (in *Run) get(args []ref.Val) ref.Val {
	return in.Found(text(args[0]), in.Cache.Get(text(args[0]), text(args[1]), text(args[2])))
}

// list is list(source).
func (in *Run) list(args []ref.Val) ref.Val {
	return in.objects(text(args[0]), in.Cache.Lookup(text(args[0]), "", ""))
}

func (in *Run) objects(source string, objs []*event.Object) ref.Val {
	vals := make([]ref.Val, len(objs))
	in.Meter.Charge(sortWork(len(objs)))
	for i, obj := range objs {
		vals[i] = in.Found(source, obj)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, vals)
}

// sortWork is the work of finding n objects and sorting them.
func sortWork(n int) int { return n * (64 + 16*bits.Len(uint(n))) } //nolint:gosec // not negative

// text returns an argument that is a string according to the compiler.
func text(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}
