package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Kept tells which fields the cache of a source with `cache: auto` keeps.
type Kept struct {
	Source string `json:"source"`
	// Whole: it keeps whole objects, for the reasons in Because.
	Whole   bool     `json:"whole,omitempty"`
	Because []string `json:"because,omitempty"`
	// Fields are the kept fields beside the identity, and their readers.
	Fields []KeptField `json:"fields,omitempty"`
	// Metadata: the API server sends the metadata only.
	Metadata bool `json:"metadataOnly,omitempty"`
	// Bytes is the estimated memory of an object; 0: unknown.
	Bytes int `json:"bytesPerObject,omitempty"`
}

// KeptField is a field that a cache keeps.
type KeptField struct {
	Path    string   `json:"path"`
	Readers []string `json:"readers"`
}

// keptOf describes the caches of the sources with `cache: auto`.
func keptOf(p *compile.Plan) (all []Kept) {
	for _, name := range slices.Sorted(maps.Keys(p.Sources)) {
		if source := p.Sources[name]; p.Config.Sources[name].Cache == config.CacheAuto {
			all = append(all, keptBy(name, &source, p.Types[name]))
		}
	}
	return all
}

func keptBy(name string, source *compile.Source, of *schema.Type) Kept {
	k := Kept{Source: name, Whole: source.Kept.IsWhole(), Metadata: source.Kept.InMetadata()}
	if k.Whole {
		for _, r := range source.Readers {
			if r.Fields.IsWhole() {
				k.Because = append(k.Because, strings.TrimSuffix(r.Name+": "+r.Why, ": "))
			}
		}
		if len(k.Because) == 0 {
			k.Because = []string{"its readers read too many different fields"}
		}
		return k
	}
	k.Bytes = objectBytes
	for path := range source.Kept.All() {
		field := KeptField{Path: kept.Join(path)}
		for _, r := range source.Readers {
			if reads := kept.Of(path); !reads.Disjoint(r.Fields) && !slices.Contains(field.Readers, r.Name) {
				field.Readers = append(field.Readers, r.Name)
			}
		}
		k.Bytes += sizeOf(of, path)
		k.Fields = append(k.Fields, field)
	}
	return k
}

// String returns the text of `router check`.
func (k *Kept) String() string {
	var b strings.Builder
	switch {
	case k.Whole:
		fmt.Fprintf(&b, "source %s keeps whole objects\n", k.Source)
		for _, reason := range k.Because {
			fmt.Fprintf(&b, "  because of %s\n", reason)
		}
	case k.Metadata:
		fmt.Fprintf(&b, "source %s keeps %s, about %d bytes per object; the API server sends metadata only\n", k.Source, k.count(), k.Bytes)
	default:
		fmt.Fprintf(&b, "source %s keeps %s, about %d bytes per object\n", k.Source, k.count(), k.Bytes)
	}
	for _, f := range k.Fields {
		fmt.Fprintf(&b, "  %s for %s\n", f.Path, strings.Join(f.Readers, ", "))
	}
	return b.String()
}

func (k *Kept) count() string {
	switch n := len(k.Fields); n {
	case 0:
		return "the identity of objects"
	case 1:
		return "1 field"
	default:
		return fmt.Sprintf("%d fields", n)
	}
}

const (
	// objectBytes is the memory of a cached object with its identity only: the text, the Object and
	// its entries in the cache.
	objectBytes = 600
	// textBytes is the assumed length of a text, and of a value of unknown type.
	textBytes = 24
	// elements is the assumed number of elements of a list or map.
	elements = 3
	// deepest bounds types that contain themselves.
	deepest = 6
)

// sizeOf estimates the bytes of the field at a path of an object.
func sizeOf(of *schema.Type, path []string) int {
	n, times := 0, 1
	for _, key := range path {
		for of != nil && of.Kind == schema.List {
			of, times = of.Elem, times*elements
		}
		n += times * (len(key) + len(`"":{},`))
		switch {
		case of == nil:
		case of.Kind == schema.Map:
			of = of.Elem
		default:
			of = of.Fields[key].Type
		}
	}
	return n + times*valueBytes(of, deepest)
}

// valueBytes estimates the bytes of a value.
func valueBytes(of *schema.Type, depth int) (n int) {
	if of == nil || depth == 0 {
		return textBytes
	}
	switch of.Kind { //nolint:exhaustive // the others are scalars
	case schema.Object:
		for key, field := range of.Fields {
			if field.Required { // an optional field is mostly absent
				n += len(key) + len(`"":,`) + valueBytes(field.Type, depth-1)
			}
		}
		return max(n, textBytes)
	case schema.List, schema.Map:
		return elements * valueBytes(of.Elem, depth-1)
	case schema.Bool, schema.Int, schema.Double:
		return len("false")
	}
	return textBytes
}
