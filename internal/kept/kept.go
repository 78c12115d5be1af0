// Package kept has sets of fields of an object: those that the consumers of a source read, and
// those that its cache keeps.
package kept

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// most is the number of fields from which a set is the whole object: a selection compares each key
// of an object with the keys of the set.
const most = 256

// Set is a set of fields of an object. Each is a path of keys, and stands for everything below it.
// A path that meets a list continues in every element. The zero Set has no field. It is immutable.
type Set struct {
	whole bool
	paths [][]string // sorted, none is below another
}

// Whole returns the set of all fields.
func Whole() Set { return Set{whole: true} }

// Of returns the set of some paths. An empty path is the whole object.
func Of(paths ...[]string) Set {
	sorted := slices.Clone(paths)
	slices.SortFunc(sorted, slices.Compare)
	var s Set
	for _, path := range sorted {
		switch {
		case len(path) == 0:
			return Whole()
		case len(s.paths) == 0 || !below(path, s.paths[len(s.paths)-1]):
			s.paths = append(s.paths, path)
		}
	}
	if len(s.paths) > most {
		return Whole()
	}
	return s
}

// below reports whether a path is another one or below it.
func below(path, above []string) bool {
	return len(path) >= len(above) && slices.Equal(path[:len(above)], above)
}

// Identity returns the fields that every cached object has: its identity, and the time of its
// creation, which distinguishes it from an object of which only the identity is known.
func Identity() Set {
	return Of([]string{"apiVersion"}, []string{"kind"}, []string{"metadata", "name"}, []string{"metadata", "namespace"},
		[]string{"metadata", "uid"}, []string{"metadata", "resourceVersion"}, []string{"metadata", "creationTimestamp"})
}

// IsWhole reports whether s has all fields.
func (s Set) IsWhole() bool { return s.whole }

// Or returns the union of two sets.
func (s Set) Or(other Set) Set {
	if s.whole || other.whole {
		return Whole()
	}
	return Of(slices.Concat(s.paths, other.paths)...)
}

// And returns the fields that are in both sets.
func (s Set) And(other Set) Set {
	if s.whole {
		return other
	}
	var paths [][]string
	for _, pair := range [][2]Set{{s, other}, {other, s}} {
		for _, path := range pair[0].paths {
			if pair[1].Covers(Of(path)) {
				paths = append(paths, path)
			}
		}
	}
	return Of(paths...)
}

// Covers reports whether s has all fields of another set.
func (s Set) Covers(other Set) bool {
	if s.whole || other.whole {
		return s.whole
	}
	return !slices.ContainsFunc(other.paths, func(path []string) bool {
		return !slices.ContainsFunc(s.paths, func(above []string) bool { return below(path, above) })
	})
}

// Equal reports whether two sets have the same fields.
func (s Set) Equal(other Set) bool { return s.Covers(other) && other.Covers(s) }

// InMetadata reports whether all fields are in the metadata of an object, which the API server can
// send alone.
func (s Set) InMetadata() bool {
	return !s.whole && !slices.ContainsFunc(s.paths, func(path []string) bool {
		return path[0] != "metadata" && path[0] != "apiVersion" && path[0] != "kind"
	})
}

// All returns the fields without those of [Identity].
func (s Set) All() iter.Seq[[]string] {
	always := Identity()
	return func(yield func([]string) bool) {
		for _, path := range s.paths {
			if !always.Covers(Of(path)) && !yield(path) {
				return
			}
		}
	}
}

// Disjoint reports whether no field of s is one of other, above or below it.
func (s Set) Disjoint(other Set) bool {
	if s.whole || other.whole {
		return false
	}
	return !slices.ContainsFunc(s.paths, func(path []string) bool {
		return slices.ContainsFunc(other.paths, func(read []string) bool { return below(path, read) || below(read, path) })
	})
}

// Missing returns the fields of another set that s does not have, as a configuration writes them.
// Of the whole object they are not known.
func (s Set) Missing(other Set) (texts []string) {
	for path := range other.All() {
		if !s.Covers(Of(path)) {
			texts = append(texts, Join(path))
		}
	}
	return texts
}

// Paths returns the fields as a configuration writes them, without those of [Identity].
func (s Set) Paths() (texts []string) {
	for path := range s.All() {
		texts = append(texts, Join(path))
	}
	return texts
}

// Keys returns the fields as paths of keys, as [Of] takes them; nil: all fields.
func (s Set) Keys() [][]string {
	if s.whole {
		return nil
	}
	return append([][]string{}, s.paths...)
}

// Join writes a path: status.phase, or metadata.labels["app.kubernetes.io/name"].
func Join(path []string) string {
	var b strings.Builder
	for i, key := range path {
		switch {
		case strings.ContainsFunc(key, func(r rune) bool { return !isPlain(r) }) || key == "":
			b.WriteString("[" + strconv.Quote(key) + "]")
		case i > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}
	return b.String()
}

func isPlain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// whole is the text of [Whole].
const whole = "*"

// Text returns the set as a text for [Parse]. It is not empty, and equal for equal sets.
func (s Set) Text() string {
	if s.whole {
		return whole
	}
	text, err := json.Marshal(s.paths)
	if err != nil {
		return whole // lists of strings can be marshalled
	}
	return string(text)
}

// Parse is the inverse of [Set.Text].
func Parse(text string) (Set, error) {
	if text == whole {
		return Whole(), nil
	}
	var paths [][]string
	if err := json.Unmarshal([]byte(text), &paths); err != nil {
		return Set{}, fmt.Errorf("kept fields: %w", err)
	}
	return Of(paths...), nil
}

// Selection returns the selection that copies the fields of s; nil: all.
func (s Set) Selection() *rawjson.Selection {
	if s.whole {
		return nil
	}
	selection := rawjson.NewSelection()
	for _, path := range s.paths {
		selection.Add(path...)
	}
	return selection
}
