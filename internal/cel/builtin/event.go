package builtin

import (
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
)

// EventFunctions declares event(), withType() and withSubject().
func EventFunctions() []cel.EnvOption {
	attribute := func(name string, set func(*Event, string)) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(syntax.FuncEvent+"_"+name+"_deltarouter", []*cel.Type{typeset.EventType, cel.StringType}, typeset.EventType,
			cel.BinaryBinding(func(event, value ref.Val) ref.Val {
				e, ok := event.(*Event)
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
		cel.Function(syntax.FuncEvent, cel.Overload(syntax.FuncEvent+"_deltarouter", []*cel.Type{cel.TypeParamType("D")}, typeset.EventType,
			cel.UnaryBinding(func(data ref.Val) ref.Val {
				if _, ok := data.(traits.Mapper); !ok {
					return types.WrapErr(celerr.Wrong("event() takes a map, and this is a " + jsonval.TypeName(data)))
				}
				return &Event{Data: data}
			}))),
		attribute("withType", func(e *Event, text string) { e.Name = text }),
		attribute("withSubject", func(e *Event, text string) { e.Subject = text }),
	}
}

// Event is an event that an emit makes. It is immutable.
type Event struct {
	Data          ref.Val
	Name, Subject string // empty: the default
}

// asMap returns an event as [cel.Program.Value] shows it.
func (e *Event) asMap() ref.Val {
	m := map[ref.Val]ref.Val{types.String("data"): e.Data}
	if e.Name != "" {
		m[types.String("type")] = types.String(e.Name)
	}
	if e.Subject != "" {
		m[types.String("subject")] = types.String(e.Subject)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, m)
}

// Shown makes maps of events.
func Shown(v ref.Val) ref.Val {
	switch v := v.(type) {
	case *Event:
		return v.asMap()
	case *jsonval.List:
	case traits.Lister:
		var vals []ref.Val
		for it := v.Iterator(); it.HasNext() == types.True; {
			vals = append(vals, Shown(jsonval.Unwrap(it.Next())))
		}
		return types.NewRefValList(types.DefaultTypeAdapter, vals)
	}
	return v
}

// An Event is a ref.Val that expressions can make, but not use.

// ConvertToNative implements [ref.Val].
func (e *Event) ConvertToNative(reflect.Type) (any, error) {
	return nil, celerr.Wrong("an event is no value by itself")
}

// ConvertToType implements [ref.Val].
func (e *Event) ConvertToType(t ref.Type) ref.Val { return jsonval.Convert(e, typeset.EventType, t) }

// Equal implements [ref.Val].
func (e *Event) Equal(other ref.Val) ref.Val { return types.Bool(ref.Val(e) == other) }

// Type implements [ref.Val].
func (e *Event) Type() ref.Type { return typeset.EventType }

// Value implements [ref.Val].
func (e *Event) Value() any { return nil }
