package crds

import (
	"cmp"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/config/scalar"
	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Bounds of the values of a custom resource, beside those of the tags. The API server estimates the
// cost of the rules from them.
const (
	maxElements   = 64
	maxName       = 63
	maxExpression = 32 << 10
	maxScalar     = 32 // of a duration or a size
)

// The characters of values in text.
const (
	namePattern     = `^[A-Za-z][A-Za-z0-9_-]{0,62}$`
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
	sizePattern     = `^[0-9]+([kMGT]|[KMGT]i)?$`
	countPattern    = `^[0-9]+[kMGT]?$`
)

// schema is the part of a structural OpenAPI schema that the resources need.
type schema struct {
	scalarSchema
	Type                 string            `json:"type,omitempty"`
	Description          string            `json:"description,omitempty"`
	Items                *schema           `json:"items,omitempty"`
	MinItems             int               `json:"minItems,omitempty"`
	MaxItems             int               `json:"maxItems,omitempty"`
	Properties           map[string]schema `json:"properties,omitempty"`
	AdditionalProperties *schema           `json:"additionalProperties,omitempty"`
	MinProperties        int               `json:"minProperties,omitempty"`
	MaxProperties        int               `json:"maxProperties,omitempty"`
	Required             []string          `json:"required,omitempty"`
	AnyOf                []schema          `json:"anyOf,omitempty"`
	IntOrString          bool              `json:"x-kubernetes-int-or-string,omitempty"`
	ListType             string            `json:"x-kubernetes-list-type,omitempty"`
	ListMapKeys          []string          `json:"x-kubernetes-list-map-keys,omitempty"`
	Rules                []Rule            `json:"x-kubernetes-validations,omitempty"`
}

// scalarSchema has the bounds of texts and numbers.
type scalarSchema struct {
	Format    string   `json:"format,omitempty"`
	Enum      []string `json:"enum,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	Minimum   *int64   `json:"minimum,omitempty"`
	Maximum   *int64   `json:"maximum,omitempty"`
	MinLength int      `json:"minLength,omitempty"`
	MaxLength int      `json:"maxLength,omitempty"`
}

// names are the keys of a route whose values are names.
var names = map[string]bool{"from": true, "handler": true}

// docs describe the keys of a route that have fewer forms than in a file.
var docs = map[string]string{
	"filter":   "CEL, bool: true for the deltas that the route wants. With several sources, source is the name of the delta's. Absent: all deltas.",
	"when":     "CEL, bool, over object and now: a condition. The route reports when it begins to hold for an object (entered), and when it ends (left).",
	"from":     "The sources of the route.",
	"overflow": "Behaviour when the queue is full. coalesce: the queue keeps the net change of each object. dropOldest: the oldest delta is lost, and counted.",
	"ops":      "The types of changes. With when, they are entered (the condition begins to hold) and left (it ends), and both are the default.",
	"to":       "Targets: the names of sinks.",
}

// limits are the bounds of routes outside of the configuration itself, see config.Route, which
// replace those of the tags. Beyond them a route would harm those of others.
var limits = map[reflect.Type]map[string]tags.Field{
	reflect.TypeFor[config.Route](): {"overflow": {Enum: []string{config.OverflowCoalesce, config.OverflowDropOldest}}, "concurrency": {Max: "16"}, "reevaluate": {Min: "1m"}},
	reflect.TypeFor[config.Batch](): {"size": {Max: "1000"}},
	reflect.TypeFor[config.Queue](): {"memory": {Max: "10000"}, "bytes": {Default: "16Mi"}},
}

// left are the keys of a route that its custom resource does not have: the object has a name, and
// cannot be renamed; and the leader of a fleet handles routes that are objects.
var left = map[string]bool{"name": true, "id": true, "workers": true}

// structSchema returns the schema of a struct of the configuration.
func structSchema(t reflect.Type) schema {
	s := schema{Type: "object", Properties: make(map[string]schema), Rules: rulesOf(t)}
	for _, f := range tags.Of(t) {
		if f.Self || t == reflect.TypeFor[config.Route]() && left[f.Key] {
			continue
		}
		limit := limits[t][f.Key]
		f.Min, f.Max, f.Default = cmp.Or(limit.Min, f.Min), cmp.Or(limit.Max, f.Max), cmp.Or(limit.Default, f.Default)
		if limit.Enum != nil {
			f.Enum = limit.Enum
		}
		if f.Required || t == reflect.TypeFor[config.Route]() && f.Key == "from" {
			s.Required = append(s.Required, f.Key)
		}
		if doc := docs[f.Key]; doc != "" && t == reflect.TypeFor[config.Route]() {
			f.Doc = doc
		}
		s.Properties[f.Key] = fieldSchema(t.FieldByIndex(f.Index).Type, f)
	}
	return s
}

// fieldSchema returns the schema of a key. The defaults are a part of its description: the API
// server would write them into each object, where a new version of the router could not change
// them.
func fieldSchema(t reflect.Type, f tags.Field) schema {
	s := typeSchema(t, f)
	s.Description = f.Doc
	if f.Default != "" {
		s.Description += " Default: " + strings.Join(strings.Fields(f.Default), ", ") + "."
	}
	return s
}

func typeSchema(t reflect.Type, f tags.Field) schema {
	switch t {
	case reflect.TypeFor[config.Expr](), reflect.TypeFor[config.Filter]():
		return text(scalarSchema{MinLength: 1, MaxLength: maxExpression})
	case reflect.TypeFor[config.Target]():
		return text(scalarSchema{Pattern: namePattern, MaxLength: maxName})
	case reflect.TypeFor[config.Debounce]():
		return structSchema(reflect.TypeFor[config.DebounceForm]())
	case reflect.TypeFor[time.Duration]():
		s := text(scalarSchema{Pattern: durationPattern, MaxLength: maxScalar})
		s.Rules = durationRules(f)
		return s
	case reflect.TypeFor[scalar.Size]():
		return intOrString(sizePattern)
	case reflect.TypeFor[scalar.Count]():
		return intOrString(countPattern)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem(), f)
	case reflect.Struct:
		return structSchema(t)
	case reflect.Map:
		element := typeSchema(t.Elem(), f.Element())
		return schema{Type: "object", AdditionalProperties: &element, MinProperties: int(number(f.Min)), MaxProperties: maxElements}
	case reflect.Slice:
		element := typeSchema(t.Elem(), f.Element())
		return schema{Type: "array", Items: &element, MinItems: int(number(f.Min)), MaxItems: maxElements, ListType: "set"}
	case reflect.Bool:
		return schema{Type: "boolean"}
	case reflect.String:
		return textSchema(f)
	}
	s := integer("")
	if f.Min != "" {
		low := number(f.Min)
		s.Minimum = &low
	}
	if f.Max != "" {
		high := number(f.Max)
		s.Maximum = &high
	}
	return s
}

func textSchema(f tags.Field) schema {
	if names[f.Key] {
		return text(scalarSchema{Pattern: namePattern, MaxLength: maxName})
	}
	return text(scalarSchema{Enum: f.Enum})
}

func text(s scalarSchema) schema { return schema{Type: "string", scalarSchema: s} }

func integer(doc string) schema {
	return schema{Type: "integer", scalarSchema: scalarSchema{Format: "int64"}, Description: doc}
}

// intOrString returns the schema of a number with or without a unit.
func intOrString(pattern string) schema {
	return schema{
		AnyOf: []schema{{Type: "integer"}, {Type: "string"}}, IntOrString: true,
		scalarSchema: scalarSchema{Pattern: pattern, MaxLength: maxScalar},
	}
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0: there is no bound
	return n
}
