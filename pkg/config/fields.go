package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// field is what the tags of a struct's field say.
type field struct {
	index     int
	name      string // in Go
	key       string
	required  bool
	path      bool
	self      bool // receives the node of the struct
	byDefault string
	enum      []string
	min, max  string
	doc       string
}

// fieldsOf returns the fields that have a key, in the order of the struct.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, ok := sf.Tag.Lookup("yaml")
		if !ok || tag == "-" || !sf.IsExported() {
			continue
		}
		key, options, _ := strings.Cut(tag, ",")
		f := field{
			index: i, name: sf.Name, key: key,
			byDefault: sf.Tag.Get("default"), enum: strings.Fields(sf.Tag.Get("enum")),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"), doc: sf.Tag.Get("doc"),
		}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "required":
				f.required = true
			case "path":
				f.path = true
			case "self":
				f.self = true
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// element returns what of a list's or map's tags holds for its elements.
func (f field) element() field { return field{key: f.key, enum: f.enum, path: f.path} }

// bound reads a min or max as a value of the field's type; the result is not valid if there is none.
func (f field) bound(t reflect.Type, text string) reflect.Value {
	if text == "" {
		return reflect.Value{}
	}
	v := reflect.New(t).Elem()
	if setScalar(v, text) != nil {
		return reflect.Value{}
	}
	return v
}

// or lists alternatives: a, b or c.
func or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Suggest completes a message about a name that is not known: it proposes the known name that is most like it, else it lists them.
func Suggest(name string, known []string) string {
	if near, ok := nearest(name, known); ok {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(known) == 0 {
		return "; none is known"
	}
	return "; known are " + strings.Join(known, ", ")
}

// nearest returns the known name that can be reached by the fewest typing mistakes, if they are few.
func nearest(name string, known []string) (string, bool) {
	const maxName = 64
	best, found := 0, ""
	for _, k := range known {
		if len(name) > maxName || len(k) > maxName {
			continue
		}
		d := distance([]rune(strings.ToLower(name)), []rune(strings.ToLower(k)))
		if d <= max(1, min(len(name), len(k))/3) && (found == "" || d < best) {
			best, found = d, k
		}
	}
	return found, found != ""
}

// distance counts the characters to insert, remove, replace or swap with their neighbour (Damerau-Levenshtein).
func distance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
