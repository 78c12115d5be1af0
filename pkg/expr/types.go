package expr

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/pkg/schema"
)

// typeSet knows the types of objects by the names that they have in CEL: those of their schemas. It is what cel-go asks when it
// checks an expression. After it was filled it is immutable, but for what it notes of mistakes.
type typeSet struct {
	types.Provider

	objects map[string]*objectType
	celOf   map[*schema.Type]*cel.Type
	shapes  shapes

	noting sync.Mutex
	missed []missedField // since it was last asked
}

// objectType is the type of an object.
type objectType struct {
	of     *schema.Type
	fields map[string]*types.FieldType // by each of their names
}

// missedField is a field that an expression asks for and an object does not have.
type missedField struct {
	of    *schema.Type
	field string
}

func newTypeSet(base types.Provider) *typeSet {
	s := &typeSet{
		Provider: base, objects: make(map[string]*objectType), celOf: make(map[*schema.Type]*cel.Type), shapes: make(shapes),
	}
	s.addRecords()
	return s
}

// add makes a type of CEL of a schema. Schemas of the same name with the same fields are one type: each group of an API server
// describes ObjectMeta anew.
func (s *typeSet) add(t *schema.Type) *cel.Type {
	if t == nil {
		return cel.DynType
	}
	switch t.Kind {
	case schema.Bool:
		return cel.BoolType
	case schema.Int:
		return cel.IntType
	case schema.Double:
		return cel.DoubleType
	case schema.String:
		return cel.StringType
	case schema.Bytes:
		return cel.BytesType
	case schema.Timestamp, schema.Date:
		return cel.TimestampType
	case schema.Duration:
		return cel.DurationType
	case schema.List:
		return cel.ListType(s.add(t.Elem))
	case schema.Map:
		return cel.MapType(cel.StringType, s.add(t.Elem))
	case schema.Object:
		return s.object(t)
	case schema.Any, schema.IntOrString:
	}
	return cel.DynType
}

func (s *typeSet) object(t *schema.Type) *cel.Type {
	if known, ok := s.celOf[t]; ok {
		return known
	}
	name := t.Name
	for n := 2; s.objects[name] != nil; n++ {
		if sameFields(s.objects[name].of, t) {
			s.celOf[t] = s.celOf[s.objects[name].of]
			return s.celOf[t]
		}
		name = fmt.Sprintf("%s#%d", t.Name, n)
	}
	o := &objectType{of: t, fields: make(map[string]*types.FieldType, len(t.Fields))}
	s.objects[name] = o
	s.celOf[t] = cel.ObjectType(name)
	for _, key := range slices.Sorted(maps.Keys(t.Fields)) {
		field := fieldType(s.add(t.Fields[key].Type), key, s.shapes.of(t.Fields[key].Type))
		for _, called := range names(key) {
			o.fields[called] = field
		}
	}
	return s.celOf[t]
}

func sameFields(a, b *schema.Type) bool {
	return maps.EqualFunc(a.Fields, b.Fields, func(x, y schema.Field) bool {
		return x.Required == y.Required && x.Type.Kind == y.Type.Kind && x.Type.Name == y.Type.Name
	})
}

// fieldType reads the field out of the text of an object without a detour over its name as a value.
func fieldType(t *cel.Type, name string, s *shape) *types.FieldType {
	missing := absent(fmt.Sprintf("no such key: %q", name))
	find := func(target any) (*mapValue, string) {
		m, ok := target.(*mapValue)
		if !ok {
			return m, ""
		}
		open := m.find(name)
		if open != "" && open[0] == 'n' {
			open = "" // null
		}
		return m, open
	}
	return &types.FieldType{
		Type: t,
		IsSet: func(target any) bool {
			_, open := find(target)
			return open != ""
		},
		GetFrom: func(target any) (any, error) {
			m, open := find(target)
			if open == "" {
				return nil, missing
			}
			v := m.child(open, s)
			if err, ok := v.(*types.Err); ok {
				return nil, err
			}
			return v, nil
		},
	}
}

// takeMissed returns and forgets what was missed.
func (s *typeSet) takeMissed() []missedField {
	s.noting.Lock()
	defer s.noting.Unlock()
	missed := s.missed
	s.missed = nil
	return missed
}

// FindStructType implements types.Provider.
func (s *typeSet) FindStructType(name string) (*types.Type, bool) {
	if o, ok := s.objects[name]; ok {
		return types.NewTypeTypeWithParam(s.celOf[o.of]), true
	}
	return s.Provider.FindStructType(name)
}

// FindIdent implements types.Provider: the name of a type is a value too.
func (s *typeSet) FindIdent(name string) (ref.Val, bool) {
	if o, ok := s.objects[name]; ok {
		return s.celOf[o.of], true
	}
	return s.Provider.FindIdent(name)
}

// FindStructFieldNames implements types.Provider.
func (s *typeSet) FindStructFieldNames(name string) ([]string, bool) {
	if o, ok := s.objects[name]; ok {
		return slices.Sorted(maps.Keys(o.of.Fields)), true
	}
	return s.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (s *typeSet) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	o, ok := s.objects[name]
	if !ok {
		return s.Provider.FindStructFieldType(name, field)
	}
	t, ok := o.fields[field]
	if !ok {
		s.noting.Lock()
		s.missed = append(s.missed, missedField{o.of, field})
		s.noting.Unlock()
	}
	return t, ok
}

// NewValue implements types.Provider: objects are not made by expressions.
func (s *typeSet) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := s.objects[name]; ok {
		return types.WrapErr(wrong("an expression cannot make a " + name + "; write a map instead"))
	}
	return s.Provider.NewValue(name, fields)
}
