package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The compact form of a Set is JSON. A type is one word. A scalar is its name; a list or map is
// "[]" or "{}" before the type of its elements ("[set]" and "[map:k1,k2]" for lists with a list
// type); an object is "@" before its name. "?" before these means nullable, and "!" before that a
// required field.
type compact struct {
	Resources map[string]compactResource   `json:"resources"` // by group/version/resource
	Types     map[string]map[string]string `json:"types"`     // fields by the name of the object
}

type compactResource struct {
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced,omitempty"`
	Type       string `json:"type"`
}

// scalars are the words for scalars by kind.
func scalars() []string {
	return []string{
		Any: "any", Bool: "bool", Int: "int", Double: "double", String: "string", Bytes: "bytes", Timestamp: "timestamp",
		Date: "date", Duration: "duration", IntOrString: "intOrString",
	}
}

// MarshalJSON writes the set in the form of [Set.UnmarshalJSON]. Its result is deterministic and
// leaves out types that no resource refers to.
func (s *Set) MarshalJSON() ([]byte, error) {
	c := compact{Resources: make(map[string]compactResource), Types: make(map[string]map[string]string)}
	words := scalars()
	var write func(t *Type) string
	write = func(t *Type) string {
		word := ""
		if t.Nullable {
			word = "?"
		}
		if t.Max > 0 {
			word += "#" + strconv.Itoa(t.Max)
		}
		switch t.Kind {
		case List:
			attributes := t.ListType
			if len(t.Keys) > 0 {
				attributes += ":" + strings.Join(t.Keys, ",")
			}
			return word + "[" + attributes + "]" + write(t.Elem)
		case Map:
			return word + "{}" + write(t.Elem)
		case Object:
			if c.Types[t.Name] == nil {
				fields := make(map[string]string, len(t.Fields))
				c.Types[t.Name] = fields
				for key, f := range t.Fields {
					required := ""
					if f.Required {
						required = "!"
					}
					fields[key] = required + write(f.Type)
				}
			}
			return word + "@" + t.Name
		default:
			return word + words[t.Kind]
		}
	}
	for n, r := range s.resources {
		c.Resources[n.String()] = compactResource{r.Kind, r.Namespaced, write(r.Type)}
	}
	return json.Marshal(c)
}

// UnmarshalJSON reads the output of [Set.MarshalJSON].
func (s *Set) UnmarshalJSON(text []byte) error {
	var c compact
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("schemas: %w", err)
	}
	r := reader{types: make(map[string]*Type, len(c.Types)), words: make(map[string]*Type)}
	for key, fields := range c.Types {
		if len(fields) == 0 {
			return fmt.Errorf("schemas: type %s has no fields", key)
		}
		r.types[key] = &Type{Kind: Object, Name: key, Fields: make(map[string]Field, len(fields))}
	}
	for key, fields := range c.Types {
		for field, word := range fields {
			word, required := strings.CutPrefix(word, "!")
			t, err := r.read(word)
			if err != nil {
				return fmt.Errorf("schemas: %s.%s: %w", key, field, err)
			}
			r.types[key].Fields[field] = Field{Type: t, Required: required}
		}
	}
	s.resources = make(map[name]Resource, len(c.Resources))
	for key, resource := range c.Resources {
		t, err := r.read(resource.Type)
		if err != nil {
			return fmt.Errorf("schemas: %s: %w", key, err)
		}
		parts := strings.Split(key, "/")
		if len(parts) == 2 {
			parts = slices.Insert(parts, 0, "")
		}
		if len(parts) != 3 || t.Kind != Object {
			return fmt.Errorf("schemas: %s: not a resource", key)
		}
		s.resources[name{parts[0], parts[1], parts[2]}] = Resource{resource.Kind, resource.Namespaced, t}
	}
	return nil
}

// reader makes types of words. Equal words become one type.
type reader struct {
	types map[string]*Type
	words map[string]*Type
}

var errWord = errors.New("not the word for a type")

func (r *reader) read(word string) (*Type, error) {
	if t, ok := r.words[word]; ok {
		return t, nil
	}
	if len(word) > 1000 {
		return nil, errWord
	}
	t, err := r.make(word)
	if err == nil {
		r.words[word] = t
	}
	return t, err
}

func (r *reader) make(word string) (*Type, error) {
	switch {
	case strings.HasPrefix(word, "?"):
		t, err := r.read(word[1:])
		if err != nil {
			return nil, err
		}
		nullable := *t
		nullable.Nullable = true
		return &nullable, nil
	case strings.HasPrefix(word, "#"):
		return r.bounded(word[1:])
	case strings.HasPrefix(word, "@"):
		if t, ok := r.types[word[1:]]; ok {
			return t, nil
		}
		return nil, fmt.Errorf("there is no type %s", word[1:])
	case strings.HasPrefix(word, "{}"):
		elem, err := r.read(word[2:])
		return &Type{Kind: Map, Elem: elem}, err
	case strings.HasPrefix(word, "["):
		attributes, elem, ok := strings.Cut(word[1:], "]")
		if !ok {
			return nil, errWord
		}
		t := &Type{Kind: List}
		listType, keys, keyed := strings.Cut(attributes, ":")
		if t.ListType = listType; keyed {
			t.Keys = strings.Split(keys, ",")
		}
		var err error
		t.Elem, err = r.read(elem)
		return t, err
	}
	if kind := slices.Index(scalars(), word); kind >= 0 {
		return &Type{Kind: Kind(kind)}, nil //nolint:gosec // there are ten
	}
	return nil, errWord
}

// bounded reads a maximum length and the type that it bounds.
func (r *reader) bounded(word string) (*Type, error) {
	digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
	most, err := strconv.Atoi(word[:digits])
	if err != nil {
		return nil, errWord
	}
	t, err := r.read(word[digits:])
	if err != nil || t.Kind != List && t.Kind != Map && t.Kind != String {
		return nil, cmp.Or(err, errWord)
	}
	bounded := *t
	bounded.Max = most
	return &bounded, nil
}

// String returns a name in the form of configurations.
func (n name) String() string {
	return strings.TrimPrefix(n.group+"/"+n.version+"/"+n.resource, "/")
}

func compareNames(a, b name) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.version, b.version), cmp.Compare(a.resource, b.resource))
}

// Merge adds the resources of another set, which replace existing ones.
func (s *Set) Merge(other *Set) {
	if s.resources == nil {
		s.resources = make(map[name]Resource)
	}
	maps.Copy(s.resources, other.resources)
}
