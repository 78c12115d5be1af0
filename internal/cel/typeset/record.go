package typeset

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The types of the results of our functions, and of `event`. Their fields are checked like those of
// objects.
const (
	DifferenceType = "deltarouter.Difference"
	ManagerType    = "deltarouter.Manager"
	ControllerType = "deltarouter.Controller"
	EventRecord    = "deltarouter.Event"
)

// records are their fields.
func records() map[string]map[string]*cel.Type {
	str := cel.StringType
	return map[string]map[string]*cel.Type{
		DifferenceType: {"path": str, "old": cel.DynType, "new": cel.DynType},
		ManagerType: {
			"manager": str, "operation": str, "apiVersion": str, "subresource": str, "time": cel.TimestampType, "fields": cel.ListType(str),
		},
		ControllerType: {"apiVersion": str, "kind": str, "namespace": str, "name": str, "uid": str, "object": cel.DynType},
		EventRecord: {
			"id": str, "type": str, "source": str, "subject": str, "route": str, "time": cel.TimestampType, "data": cel.DynType,
		},
	}
}

// addRecords registers their types. A schema of the same name gets another name.
func (s *Set) addRecords() {
	for name, fields := range records() {
		of := &schema.Type{Kind: schema.Object, Name: name, Fields: make(map[string]schema.Field, len(fields))}
		o := &objectType{of: of, fields: make(map[string]*types.FieldType, len(fields))}
		for key, t := range fields {
			of.Fields[key] = schema.Field{Type: &schema.Type{}, Required: key != "object"}
			o.fields[key] = recordField(t, key)
		}
		s.objects[name], s.celOf[of] = o, cel.ObjectType(name)
	}
}

// Record is a value of one of those types. Code that does not know its type uses it as a map.
type Record struct{ traits.Mapper }

// NewRecord returns a record with these fields.
func NewRecord(fields map[string]ref.Val) *Record {
	vals := make(map[ref.Val]ref.Val, len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		vals[types.String(key)] = fields[key]
	}
	return &Record{types.NewRefValMap(types.DefaultTypeAdapter, vals)}
}

// Value implements ref.Val, for [recordField].
func (r *Record) Value() any { return r }

// String hides the content: cel-go prints values in some of its errors.
func (r *Record) String() string { return "{…}" }

func recordField(t *cel.Type, name string) *types.FieldType {
	missing := celerr.Absent(fmt.Sprintf("no such key: %q", name))
	return &types.FieldType{
		Type: t,
		IsSet: func(target any) bool {
			r, ok := target.(*Record)
			return ok && r.Contains(types.String(name)) == types.True
		},
		GetFrom: func(target any) (any, error) {
			r, ok := target.(*Record)
			if !ok {
				return nil, missing
			}
			v, found := r.Find(types.String(name))
			if !found {
				return nil, missing
			}
			if err, failed := v.(*types.Err); failed {
				return nil, err
			}
			return v, nil
		},
	}
}

// An emit sets more than the data of an event by event(data), followed by .withType(text) and
// .withSubject(text) in any order.

// EventType is the type of event(data).
var EventType = cel.OpaqueType("event")

// NewEvent returns `event` of a downstream route; null for nil. Its data stays text, as objects do,
// and reads of it are charged to the meter.
func NewEvent(e *event.Event, m *jsonval.Meter) ref.Val {
	if e == nil {
		return types.NullValue
	}
	data := ref.Val(types.NullValue)
	// the bytes are never modified
	if text := rawjson.Trim(unsafe.String(unsafe.SliceData(e.Data), len(e.Data))); text != "" {
		data = m.Open(string(text), jsonval.EventData())
	}
	return NewRecord(map[string]ref.Val{
		"id": types.String(e.ID), "type": types.String(e.Type), "source": types.String(e.Source), "subject": types.String(e.Subject),
		"route": types.String(e.Route), "time": types.Timestamp{Time: e.Time}, "data": data,
	})
}
