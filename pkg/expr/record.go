package expr

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/pkg/schema"
)

// The types of what our functions make, and of `event`. Their fields are checked as those of objects are.
const (
	differenceType = "deltarouter.Difference"
	managerType    = "deltarouter.Manager"
	controllerType = "deltarouter.Controller"
	eventRecord    = "deltarouter.Event"
)

// records are their fields.
func records() map[string]map[string]*cel.Type {
	str := cel.StringType
	return map[string]map[string]*cel.Type{
		differenceType: {"path": str, "old": cel.DynType, "new": cel.DynType},
		managerType: {
			"manager": str, "operation": str, "apiVersion": str, "subresource": str, "time": cel.TimestampType, "fields": cel.ListType(str),
		},
		controllerType: {"apiVersion": str, "kind": str, "namespace": str, "name": str, "uid": str, "object": cel.DynType},
		eventRecord: {
			"id": str, "type": str, "source": str, "subject": str, "route": str, "time": cel.TimestampType, "data": cel.DynType,
		},
	}
}

// addRecords makes their types known. What a schema calls the same gets another name.
func (s *typeSet) addRecords() {
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

// record is a value of one of those types. To what does not know its type it is a map.
type record struct{ traits.Mapper }

func newRecord(fields map[string]ref.Val) *record {
	vals := make(map[ref.Val]ref.Val, len(fields))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		vals[types.String(key)] = fields[key]
	}
	return &record{types.NewRefValMap(types.DefaultTypeAdapter, vals)}
}

// Value implements ref.Val: what [recordField] gets.
func (r *record) Value() any { return r }

// String hides the content: cel-go prints values in some of its errors.
func (r *record) String() string { return "{…}" }

func recordField(t *cel.Type, name string) *types.FieldType {
	missing := absent(fmt.Sprintf("no such key: %q", name))
	return &types.FieldType{
		Type: t,
		IsSet: func(target any) bool {
			r, ok := target.(*record)
			return ok && r.Contains(types.String(name)) == types.True
		},
		GetFrom: func(target any) (any, error) {
			r, ok := target.(*record)
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
