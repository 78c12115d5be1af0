package cel

import (
	"github.com/deltarouter/deltarouter/internal/cel/schema"
)

// formats has types of all kinds, including those that only custom resources have, and names that
// have to be escaped.
func formats() *schema.Type {
	field := func(kind schema.Kind) schema.Field { return schema.Field{Type: &schema.Type{Kind: kind}} }
	element := &schema.Type{Kind: schema.Object, Name: "Format.spec.things", Fields: map[string]schema.Field{
		"name": field(schema.String), "weight": field(schema.Double), "at": field(schema.Date),
	}}
	fields := map[string]schema.Field{
		"number": field(schema.Double), "day": field(schema.Date), "every": field(schema.Duration), "data": field(schema.Bytes),
		"port": field(schema.IntOrString), "on": field(schema.Bool), "count": field(schema.Int), "since": field(schema.Timestamp),
		"a-b": field(schema.String), "c.d": field(schema.Int), "e__f": field(schema.Bool), "g/h": field(schema.String), "namespace": field(schema.String),
		"things":   {Type: &schema.Type{Kind: schema.List, Elem: element, ListType: "map", Keys: []string{"name"}}},
		"names":    {Type: &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.String}, ListType: "set"}},
		"nullable": {Type: &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.String, Nullable: true}}},
		"weights":  {Type: &schema.Type{Kind: schema.Map, Elem: &schema.Type{Kind: schema.Double}}},
		"grid":     {Type: &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.List, Elem: &schema.Type{Kind: schema.Int}}}},
		"byName":   {Type: &schema.Type{Kind: schema.Map, Elem: element}},
	}
	meta := &schema.Type{Kind: schema.Object, Name: "Format.metadata", Fields: map[string]schema.Field{
		"name": field(schema.String), "generateName": field(schema.String),
	}}
	return &schema.Type{Kind: schema.Object, Name: "Format", Fields: map[string]schema.Field{
		"metadata": {Type: meta}, "kind": field(schema.String), "apiVersion": field(schema.String),
		"spec": {Type: &schema.Type{Kind: schema.Object, Name: "Format.spec", Fields: fields}},
	}}
}
