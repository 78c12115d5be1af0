// Package typeset has the types that expressions are checked against: the types of objects by
// their schemas, and the types of the records that our functions make. A [Reporter] describes the
// mistakes in the text of an expression, and their remedies.
package typeset

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
)

// Set has the types of objects by their names in CEL, which are those of their schemas. It is the
// type provider of cel-go's checker. After it was filled it is immutable, except for the missed
// fields.
type Set struct {
	types.Provider

	objects map[string]*objectType
	celOf   map[*schema.Type]*cel.Type
	Infos   jsonval.TypeInfos

	noting sync.Mutex
	missed []Missed // since the last TakeMissed
}

// objectType is the type of an object.
type objectType struct {
	of     *schema.Type
	fields map[string]*types.FieldType // by each of their names
}

// Missed is a field that an expression uses and an object does not have.
type Missed struct {
	Of    *schema.Type
	Field string
}

// New returns a set with the types of base, and those of the records.
func New(base types.Provider) *Set {
	s := &Set{
		Provider: base, objects: make(map[string]*objectType), celOf: make(map[*schema.Type]*cel.Type), Infos: make(jsonval.TypeInfos),
	}
	s.addRecords()
	return s
}

// Add makes a type of CEL of a schema. Schemas of the same name with the same fields are one type:
// each group of an API server has its own description of ObjectMeta.
func (s *Set) Add(t *schema.Type) *cel.Type {
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
		return cel.ListType(s.Add(t.Elem))
	case schema.Map:
		return cel.MapType(cel.StringType, s.Add(t.Elem))
	case schema.Object:
		return s.object(t)
	case schema.Any, schema.IntOrString:
	}
	return cel.DynType
}

func (s *Set) object(t *schema.Type) *cel.Type {
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
		field := fieldType(s.Add(t.Fields[key].Type), key, s.Infos.Of(t.Fields[key].Type))
		for _, called := range jsonval.CELNames(key) {
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

// fieldType reads the field from the text of an object, without making a value of its name.
func fieldType(t *cel.Type, name string, s *jsonval.TypeInfo) *types.FieldType {
	missing := celerr.Absent(fmt.Sprintf("no such key: %q", name))
	find := func(target any) (*jsonval.Map, string) {
		m, ok := target.(*jsonval.Map)
		if !ok {
			return m, ""
		}
		open := m.Locate(name)
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
			v := m.Child(open, s)
			if err, ok := v.(*types.Err); ok {
				return nil, err
			}
			return v, nil
		},
	}
}

// SchemaOf returns the schema of the type of that name; nil: none.
func (s *Set) SchemaOf(name string) *schema.Type {
	if o := s.objects[name]; o != nil {
		return o.of
	}
	return nil
}

// CELType returns the type that was added for a schema.
func (s *Set) CELType(t *schema.Type) *cel.Type { return s.celOf[t] }

// TakeMissed returns the missed fields and clears the list.
func (s *Set) TakeMissed() []Missed {
	s.noting.Lock()
	defer s.noting.Unlock()
	missed := s.missed
	s.missed = nil
	return missed
}

// FindStructType implements types.Provider.
func (s *Set) FindStructType(name string) (*types.Type, bool) {
	if o, ok := s.objects[name]; ok {
		return types.NewTypeTypeWithParam(s.celOf[o.of]), true
	}
	return s.Provider.FindStructType(name)
}

// FindIdent implements types.Provider: the name of a type is a value too.
func (s *Set) FindIdent(name string) (ref.Val, bool) {
	if o, ok := s.objects[name]; ok {
		return s.celOf[o.of], true
	}
	return s.Provider.FindIdent(name)
}

// FindStructFieldNames implements types.Provider.
func (s *Set) FindStructFieldNames(name string) ([]string, bool) {
	if o, ok := s.objects[name]; ok {
		return slices.Sorted(maps.Keys(o.of.Fields)), true
	}
	return s.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (s *Set) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	o, ok := s.objects[name]
	if !ok {
		return s.Provider.FindStructFieldType(name, field)
	}
	t, ok := o.fields[field]
	if !ok {
		s.noting.Lock()
		s.missed = append(s.missed, Missed{o.of, field})
		s.noting.Unlock()
	}
	return t, ok
}

// NewValue implements types.Provider: objects are not made by expressions.
func (s *Set) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := s.objects[name]; ok {
		return types.WrapErr(celerr.Wrong("an expression cannot make a " + name + "; write a map instead"))
	}
	return s.Provider.NewValue(name, fields)
}
