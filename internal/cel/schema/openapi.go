package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// document is the used part of an OpenAPI v3 document of an API server, which has one for each
// group and version.
type document struct {
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`
	Paths map[string]struct {
		Get struct {
			Action string `json:"x-kubernetes-action"`
			GVK    gvk    `json:"x-kubernetes-group-version-kind"`
		} `json:"get"`
	} `json:"paths"`
}

type gvk struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// node is a schema in its original form.
type node struct {
	Ref        string           `json:"$ref"`
	AllOf      []*node          `json:"allOf"`
	OneOf      []*node          `json:"oneOf"`
	Type       string           `json:"type"`
	Format     string           `json:"format"`
	Nullable   bool             `json:"nullable"`
	Properties map[string]*node `json:"properties"`
	Required   []string         `json:"required"`
	Items      *node            `json:"items"`
	Additional additional       `json:"additionalProperties"`
	GVK        []gvk            `json:"x-kubernetes-group-version-kind"`
	ListType   string           `json:"x-kubernetes-list-type"`
	ListKeys   []string         `json:"x-kubernetes-list-map-keys"`
	IntOrStr   bool             `json:"x-kubernetes-int-or-string"`
	Embedded   bool             `json:"x-kubernetes-embedded-resource"`
	MaxItems   int              `json:"maxItems"`
	MaxLength  int              `json:"maxLength"`
	MaxProps   int              `json:"maxProperties"`
}

// additional is additionalProperties: a schema or a bool.
type additional struct{ schema *node }

func (a *additional) UnmarshalJSON(text []byte) error {
	switch string(bytes.TrimSpace(text)) {
	case "false", "null":
		return nil
	case "true":
		a.schema = &node{}
		return nil
	}
	return json.Unmarshal(text, &a.schema)
}

// Parse reads the resources of an OpenAPI v3 document that an API server has at
// /openapi/v3/apis/<group>/<version>. Parts without a description, or that are too deep, become
// [Any].
func Parse(openAPI []byte) (*Set, error) {
	var doc document
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	if len(doc.Components.Schemas) == 0 {
		return nil, errors.New("OpenAPI document: there is no schema in it")
	}
	p := parser{schemas: doc.Components.Schemas, types: make(map[string]*Type)}
	kinds := make(map[gvk]string)
	for _, def := range slices.Sorted(maps.Keys(p.schemas)) {
		for _, kind := range p.schemas[def].GVK {
			kinds[kind] = cmp.Or(kinds[kind], def)
		}
	}
	set := &Set{resources: make(map[name]Resource)}
	for path, item := range doc.Paths {
		n, namespaced, ok := resourceOf(path)
		def, known := kinds[item.Get.GVK]
		if !ok || !known || item.Get.Action != "list" {
			continue
		}
		t := p.named(def)
		if t.Kind != Object {
			continue
		}
		namespaced = namespaced || set.resources[n].Namespaced
		set.resources[n] = Resource{Kind: item.Get.GVK.Kind, Namespaced: namespaced, Type: t}
	}
	return set, nil
}

// resourceOf splits the path of a list: /api/v1/pods,
// /apis/apps/v1/namespaces/{namespace}/deployments.
func resourceOf(path string) (n name, namespaced, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		n.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		n.group, n.version, parts = parts[1], parts[2], parts[3:]
	default:
		return n, false, false
	}
	if len(parts) == 3 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
		namespaced, parts = true, parts[2:]
	}
	if len(parts) != 1 || strings.HasPrefix(parts[0], "{") {
		return n, false, false
	}
	n.resource = parts[0]
	return n, namespaced, true
}

// maxDepth bounds the nesting of schemas without a name.
const maxDepth = 100

// parser makes types of nodes. A named schema becomes one Type for all references, including
// references to itself.
type parser struct {
	schemas map[string]*node
	types   map[string]*Type
}

func (p *parser) named(def string) *Type {
	n, ok := p.schemas[def]
	if !ok || n == nil {
		return &Type{}
	}
	if t, ok := p.types[def]; ok {
		if t.Kind == Any && (n.Type != "object" || len(n.Properties) == 0) {
			return &Type{} // a list or map of itself; only objects may contain themselves
		}
		return t
	}
	t := &Type{}
	p.types[def] = t
	if n.Type == "" && slices.ContainsFunc(n.OneOf, func(o *node) bool { return o.Type == "string" }) && n.Format == "" {
		t.Kind = String // a quantity: numbers are accepted, but the API server sends text
		return t
	}
	*t = *p.parse(n, shortName(def), 0)
	return t
}

// shortName leaves out common prefixes.
func shortName(def string) string {
	for _, prefix := range []string{
		"io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.kube-aggregator.pkg.apis.", "io.k8s.apiextensions-apiserver.pkg.apis.",
	} {
		if rest, ok := strings.CutPrefix(def, prefix); ok {
			return rest
		}
	}
	return def
}

// parse makes the type of a node. name is the name of the object that it, or its elements, may be.
func (p *parser) parse(n *node, name string, depth int) *Type {
	if n == nil || depth > maxDepth {
		return &Type{}
	}
	if n.IntOrStr || n.Format == "int-or-string" {
		return &Type{Kind: IntOrString, Nullable: n.Nullable}
	}
	if ref := n.reference(); ref != "" {
		t := p.named(ref)
		if !n.Nullable || t.Nullable {
			return t
		}
		nullable := *t
		nullable.Nullable = true
		return &nullable
	}
	t := &Type{Kind: scalarKind(n), Nullable: n.Nullable}
	switch n.Type {
	case "array":
		t.Kind, t.Elem, t.ListType, t.Keys = List, p.parse(n.Items, name, depth+1), n.ListType, n.ListKeys
	case "object":
		p.object(t, n, name, depth)
	}
	switch t.Kind {
	case List:
		t.Max = max(0, n.MaxItems)
	case Map:
		t.Max = max(0, n.MaxProps)
	case String:
		t.Max = max(0, n.MaxLength)
	default:
	}
	return t
}

// reference returns the name that the node refers to. A reference with a default is in an allOf.
func (n *node) reference() string {
	ref := n.Ref
	if len(n.AllOf) == 1 && n.Type == "" && len(n.Properties) == 0 {
		ref = cmp.Or(ref, n.AllOf[0].Ref)
	}
	return strings.TrimPrefix(ref, "#/components/schemas/")
}

func scalarKind(n *node) Kind {
	switch n.Type {
	case "boolean":
		return Bool
	case "integer":
		return Int
	case "number":
		return Double
	case "string":
		switch n.Format {
		case "byte":
			return Bytes
		case "date-time":
			return Timestamp
		case "date":
			return Date
		case "duration":
			return Duration
		}
		return String
	}
	return Any
}

// object reads the fields of an object. An object without a description stays Any.
func (p *parser) object(t *Type, n *node, name string, depth int) {
	if n.Additional.schema != nil && len(n.Properties) == 0 {
		t.Kind, t.Elem = Map, p.parse(n.Additional.schema, name, depth+1)
		return
	}
	t.Fields = make(map[string]Field, len(n.Properties))
	for key, property := range n.Properties {
		t.Fields[key] = Field{Type: p.parse(property, name+"."+key, depth+1), Required: slices.Contains(n.Required, key)}
	}
	if n.Embedded {
		p.embed(t)
	}
	if len(t.Fields) > 0 {
		t.Kind, t.Name = Object, name
	}
}

// metaDef is the schema of the metadata of objects.
const metaDef = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// embed adds the fields that all objects of resources have.
func (p *parser) embed(t *Type) {
	add := func(key string, what *Type) {
		if _, ok := t.Fields[key]; !ok {
			t.Fields[key] = Field{Type: what}
		}
	}
	add("apiVersion", &Type{Kind: String})
	add("kind", &Type{Kind: String})
	add("metadata", p.named(metaDef))
}
