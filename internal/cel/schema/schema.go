package schema

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Kind is the kind of a value.
type Kind uint8

// The kinds.
const (
	Any         Kind = iota // not described: any value
	Bool                    // true or false
	Int                     // a whole number of 64 bits
	Double                  // a number
	String                  // a text; quantities and enumerations are texts too
	Bytes                   // a text in base64
	Timestamp               // a text in the form of RFC 3339
	Date                    // a text like 2006-01-02
	Duration                // a text like 1h30m
	IntOrString             // an integer or a text
	List                    // of Elem
	Map                     // from texts to Elem
	Object                  // with Fields
)

// Type is the type of a value. It is immutable and safe for concurrent use. Types may contain
// themselves.
type Type struct {
	Kind     Kind
	Nullable bool // null is a distinct value in a list or map

	Elem *Type // of a List or Map
	Max  int   // maximum length of a List, Map or String; 0: unknown

	// ListType is "set" if the elements of a List are unique and unordered, and "map" if they also
	// are identified by Keys; else the order counts.
	ListType string
	Keys     []string

	Name   string           // name of an Object, unique in its Set, such as apps.v1.DeploymentSpec
	Fields map[string]Field // fields of an Object by name; not empty
}

// Field is a field of an Object.
type Field struct {
	Type     *Type
	Required bool // always present
}

// Resource is a resource of an API server.
type Resource struct {
	Kind       string // like Deployment
	Namespaced bool
	Type       *Type // an Object
}

// Set is a set of resources of an API server. The zero value is empty.
type Set struct {
	resources map[name]Resource
}

type name struct{ group, version, resource string }

// Resource finds a resource; group "" is the core group.
func (s *Set) Resource(group, version, resource string) (Resource, bool) {
	r, ok := s.resources[name{group, version, resource}]
	return r, ok
}

// Len returns the number of resources.
func (s *Set) Len() int { return len(s.resources) }

// Each calls f with each resource, in order of group, version and name.
func (s *Set) Each(f func(group, version, resource string, r Resource)) {
	for _, n := range slices.SortedFunc(maps.Keys(s.resources), compareNames) {
		f(n.group, n.version, n.resource, s.resources[n])
	}
}

// metadataName is the Name of the type that [Type.Metadata] returns.
const metadataName = "meta.v1.PartialObjectMetadata"

// Metadata returns the type of an object of which only the metadata is cached.
func (t *Type) Metadata() *Type {
	fields := make(map[string]Field)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		if f, ok := t.Fields[key]; ok {
			fields[key] = f
		}
	}
	if len(fields) == 0 {
		return &Type{}
	}
	return &Type{Kind: Object, Name: metadataName, Fields: fields}
}

// Plural reports whether a resource is probably that of a kind, judging by their names.
func Plural(kind, resource string) bool {
	kind = strings.ToLower(kind)
	return resource == kind || resource == kind+"s" || resource == kind+"es" || resource == strings.TrimSuffix(kind, "y")+"ies"
}

// builtin.json.gz is made by tools/schemas, see `make generate`.
//
//go:embed builtin.json.gz
var builtin []byte

// Builtin returns the built-in resources of the Kubernetes version of the sandbox, without alpha
// and beta versions. The caller may add to the set.
func Builtin() (*Set, error) {
	set, err := parsed()
	if err != nil {
		return nil, err
	}
	return &Set{maps.Clone(set.resources)}, nil
}

// parsed has the built-in resources. They take 0.3 MB, and a check of many files takes them for
// each of these: reading them would be a third of its time.
var parsed = sync.OnceValues(func() (*Set, error) {
	set := &Set{}
	text, err := Decompress(builtin)
	if err == nil {
		err = set.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, fmt.Errorf("built-in schemas: %w", err)
	}
	return set, nil
})

// Decompress returns the text of a file that `make generate` has written.
func Decompress(file []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
