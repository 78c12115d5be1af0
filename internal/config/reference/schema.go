package reference

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/config/scalar"
	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// schema is the part of JSON Schema that the configuration needs.
type schema struct {
	Schema               string     `json:"$schema,omitempty"`
	Title                string     `json:"title,omitempty"`
	Description          string     `json:"description,omitempty"`
	Type                 any        `json:"type,omitempty"` // a string or a list of them
	Enum                 []string   `json:"enum,omitempty"`
	Pattern              string     `json:"pattern,omitempty"`
	Default              any        `json:"default,omitempty"`
	Minimum              *float64   `json:"minimum,omitempty"`
	Maximum              *float64   `json:"maximum,omitempty"`
	AnyOf                []schema   `json:"anyOf,omitempty"`
	Items                *schema    `json:"items,omitempty"`
	MinItems             int        `json:"minItems,omitempty"`
	Required             []string   `json:"required,omitempty"`
	Properties           properties `json:"properties,omitempty"`
	AdditionalProperties any        `json:"additionalProperties,omitempty"` // a *schema or false
	MinProperties        int        `json:"minProperties,omitempty"`
	MaxProperties        int        `json:"maxProperties,omitempty"`
}

// properties keeps the order of the struct.
type properties []property

type property struct {
	key   string
	value schema
}

// MarshalJSON writes an object with its keys in order.
func (ps properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, p := range ps {
		key, err := json.Marshal(p.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Schema returns the JSON Schema of the configuration with these kinds of handlers and sinks, for
// editors. Its result is deterministic. It contains the rules of the tags. It requires quotes
// around text where the router would accept a number as text.
func Schema(kinds config.Kinds) []byte {
	return document(kinds, reflect.TypeFor[config.Config](), "deltarouter", "Configuration of deltarouter.")
}

// IncludeSchema is [Schema] for an included file.
func IncludeSchema(kinds config.Kinds) []byte {
	return document(kinds, reflect.TypeFor[config.FragmentForm](), "deltarouter include", "File with routes that a configuration of deltarouter includes.")
}

// document returns the schema of a document.
func document(kinds config.Kinds, t reflect.Type, title, doc string) []byte {
	s := schemas{kinds}.schemaOf(t, tags.Field{Doc: doc})
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = title
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return nil // unreachable: a test encodes it
	}
	return b.Bytes()
}

// schemas converts types into schemas.
type schemas struct{ kinds config.Kinds }

func (of schemas) schemaOf(t reflect.Type, f tags.Field) schema {
	s := of.typeSchema(t, f)
	s.Description = f.Doc
	return s
}

func (of schemas) typeSchema(t reflect.Type, f tags.Field) schema {
	switch t {
	case reflect.TypeFor[config.Node]():
		return schema{}
	case reflect.TypeFor[config.Expr]():
		return schema{Type: []string{"string", "boolean", "number"}}
	case reflect.TypeFor[config.Script]():
		return schema{Type: "string"}
	case reflect.TypeFor[config.Filter]():
		one := of.typeSchema(reflect.TypeFor[config.Expr](), f)
		return schema{AnyOf: []schema{one, {Type: "object", AdditionalProperties: &one}}}
	case reflect.TypeFor[config.Secret]():
		form := of.structSchema(reflect.TypeFor[config.SecretForm]())
		form.Type, form.MinProperties, form.MaxProperties = "object", 1, 1
		return schema{AnyOf: []schema{{Type: "string"}, form}}
	case reflect.TypeFor[config.Debounce]():
		form := of.structSchema(reflect.TypeFor[config.DebounceForm]())
		return schema{AnyOf: []schema{scalarSchema(reflect.TypeFor[time.Duration](), f), form}}
	case reflect.TypeFor[config.History]():
		return schema{AnyOf: []schema{{Type: "string", Enum: []string{"off"}}, of.structSchema(reflect.TypeFor[config.HistoryForm]())}}
	case reflect.TypeFor[config.HistorySource]():
		return schema{AnyOf: []schema{{Type: "string", Enum: []string{"none"}}, of.structSchema(reflect.TypeFor[config.HistorySourceForm]())}}
	case reflect.TypeFor[config.Target]():
		return schema{AnyOf: []schema{{Type: "string"}, of.structSchema(t)}}
	case reflect.TypeFor[config.Component]():
		return of.componentSchema(kindsOf(of.kinds, f.Key))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return of.typeSchema(t.Elem(), f)
	case reflect.Struct:
		return of.structSchema(t)
	case reflect.Map:
		element := of.typeSchema(t.Elem(), f.Element())
		low, _ := strconv.Atoi(f.Min)
		return schema{Type: []string{"object", "null"}, AdditionalProperties: &element, MinProperties: low}
	case reflect.Slice:
		return of.listSchema(t, f)
	}
	return scalarSchema(t, f)
}

func (of schemas) structSchema(t reflect.Type) schema {
	s := schema{Type: []string{"object", "null"}, AdditionalProperties: false}
	for _, f := range tags.Of(t) {
		if f.Self {
			continue
		}
		if f.Required {
			s.Required = append(s.Required, f.Key)
		}
		s.Properties = append(s.Properties, property{f.Key, of.schemaOf(t.FieldByIndex(f.Index).Type, f)})
	}
	if len(s.Required) > 0 {
		s.Type = "object" // an empty value would lack required keys
	}
	return s
}

// componentSchema allows exactly one of the kinds.
func (of schemas) componentSchema(kinds []config.Kind) schema {
	s := schema{Type: "object", AdditionalProperties: false, MinProperties: 1, MaxProperties: 1}
	for _, kind := range kinds {
		one := of.structSchema(reflect.TypeOf(kind.Config))
		one.Description = kind.Doc
		s.Properties = append(s.Properties, property{kind.Name, one})
	}
	return s
}

// listSchema also allows a scalar for a list of one element.
func (of schemas) listSchema(t reflect.Type, f tags.Field) schema {
	element := of.typeSchema(t.Elem(), f.Element())
	low, _ := strconv.Atoi(f.Min)
	list := schema{Type: "array", Items: &element, MinItems: low}
	if !config.IsScalar(t.Elem()) {
		return list
	}
	return schema{AnyOf: []schema{element, list}, Default: defaultOf(t, f)}
}

// scalarSchema also allows text with a variable for a number or an enumeration.
func scalarSchema(t reflect.Type, f tags.Field) schema {
	variable := schema{Type: "string", Pattern: `\$\{`}
	var s schema
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return schema{Type: []string{"string", "integer"}, Pattern: `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$|\$\{`, Default: defaultOf(t, f)}
	case t == reflect.TypeFor[scalar.Size]():
		return schema{Type: []string{"string", "integer"}, Pattern: `^[0-9]+([kMGT]|[KMGT]i)?$|\$\{`, Default: defaultOf(t, f)}
	case t == reflect.TypeFor[scalar.Count]():
		return schema{Type: []string{"string", "integer"}, Pattern: `^[0-9]+[kMGT]?$|\$\{`, Default: defaultOf(t, f)}
	case t.Kind() == reflect.String && len(f.Enum) == 0:
		return schema{Type: "string", Default: defaultOf(t, f)}
	case t.Kind() == reflect.String:
		s = schema{Enum: f.Enum}
	case t.Kind() == reflect.Bool:
		s = schema{Type: "boolean"}
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		s = schema{Type: "number", Minimum: number(f.Min), Maximum: number(f.Max)}
	default:
		s = schema{Type: "integer", Minimum: number(f.Min), Maximum: number(f.Max)}
	}
	return schema{AnyOf: []schema{s, variable}, Default: defaultOf(t, f)}
}

// defaultOf returns a default as JSON, or nil if there is none.
func defaultOf(t reflect.Type, f tags.Field) any {
	if f.Default == "" {
		return nil
	}
	v := reflect.New(t).Elem()
	if scalar.SetDefault(v, f.Default) != nil {
		return nil // unreachable: a test decodes it
	}
	switch v.Interface().(type) {
	case time.Duration, scalar.Size, scalar.Count:
		return f.Default
	}
	return v.Interface()
}

func number(text string) *float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return &n
}
