package expr

import (
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// An emit that wants to say more of an event than its data writes event(data), and .withType(text) and .withSubject(text) behind it, in any order.

const fnEvent = "event"

// eventType is the type of event(data).
var eventType = cel.OpaqueType("event")

func eventFunctions() []cel.EnvOption {
	attribute := func(name string, set func(*eventValue, string)) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(fnEvent+"_"+name+"_deltarouter", []*cel.Type{eventType, cel.StringType}, eventType,
			cel.BinaryBinding(func(event, value ref.Val) ref.Val {
				e, ok := event.(*eventValue)
				text, isText := value.(types.String)
				if !ok || !isText {
					return types.MaybeNoSuchOverloadErr(value)
				}
				changed := *e
				set(&changed, string(text))
				return &changed
			})))
	}
	return []cel.EnvOption{
		cel.Function(fnEvent, cel.Overload(fnEvent+"_deltarouter", []*cel.Type{cel.TypeParamType("D")}, eventType,
			cel.UnaryBinding(func(data ref.Val) ref.Val {
				if _, ok := data.(traits.Mapper); !ok {
					return types.WrapErr(wrong("event() takes a map, and this is a " + typeName(data)))
				}
				return &eventValue{data: data}
			}))),
		attribute("withType", func(e *eventValue, text string) { e.name = text }),
		attribute("withSubject", func(e *eventValue, text string) { e.subject = text }),
	}
}

// eventValue is an event that an emit makes. It is immutable.
type eventValue struct {
	data          ref.Val
	name, subject string // empty: as it is by default
}

// event checks a call of event().
func (l *linker) event(u unit, e ast.Expr) {
	if l.usage != Emit && l.usage != Value {
		l.problem(u, e, "event() makes what is emitted: it exists in emit only")
		return
	}
	data := e.AsCall().Args()[0]
	switch t := u.ast.NativeRep().GetType(data.ID()); t.Kind() {
	case types.MapKind, types.StructKind, types.DynKind, types.TypeParamKind, types.AnyKind:
	default:
		l.problem(u, data, "event() takes a map, the data of the event, and this is of type %s", cel.FormatCELType(t))
	}
}

// asMap is what [Program.Value] shows of an event.
func (e *eventValue) asMap() ref.Val {
	m := map[ref.Val]ref.Val{types.String("data"): e.data}
	if e.name != "" {
		m[types.String("type")] = types.String(e.name)
	}
	if e.subject != "" {
		m[types.String("subject")] = types.String(e.subject)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, m)
}

// shown makes maps of events.
func shown(v ref.Val) ref.Val {
	switch v := v.(type) {
	case *eventValue:
		return v.asMap()
	case *listValue:
	case traits.Lister:
		var vals []ref.Val
		for it := v.Iterator(); it.HasNext() == types.True; {
			vals = append(vals, shown(unwrap(it.Next())))
		}
		return types.NewRefValList(types.DefaultTypeAdapter, vals)
	}
	return v
}

// An eventValue is a ref.Val that expressions can do nothing with but make it.

func (e *eventValue) ConvertToNative(reflect.Type) (any, error) {
	return nil, wrong("an event is no value by itself")
}
func (e *eventValue) ConvertToType(t ref.Type) ref.Val { return convert(e, eventType, t) }
func (e *eventValue) Equal(other ref.Val) ref.Val      { return types.Bool(ref.Val(e) == other) }
func (e *eventValue) Type() ref.Type                   { return eventType }
func (e *eventValue) Value() any                       { return nil }
