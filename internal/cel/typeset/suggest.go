package typeset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// Suggest returns "; did you mean "x"?" for the nearest of the names, or "" if none is near.
func Suggest(name string, names []string) string {
	best, nearest := 1+max(1, len(name)/3), ""
	for _, candidate := range names {
		d := similar.Distance(name, candidate)
		if len(name) >= 3 && strings.HasPrefix(candidate, name) {
			// a missing rest is likelier than a typo: prot is protocol, not port
			d = 0
		}
		if d < best {
			best, nearest = d, candidate
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", nearest)
}

// undefinedField describes the fields that the object has instead; the type is that of the first
// missed field of that name.
func undefinedField(name string, missed *[]Missed) string {
	i := slices.IndexFunc(*missed, func(m Missed) bool { return m.Field == name })
	if i < 0 {
		return fmt.Sprintf("there is no field %q", name)
	}
	of := (*missed)[i].Of
	*missed = slices.Delete(*missed, i, i+1)
	return NoField(of, name)
}

// suggestInside searches the field one level deeper: object.replicas for object.spec.replicas.
func suggestInside(name string, of *schema.Type) string {
	for _, key := range slices.Sorted(maps.Keys(of.Fields)) {
		if _, ok := of.Fields[key].Type.Fields[name]; ok {
			return fmt.Sprintf("; did you mean %q?", key+"."+name)
		}
	}
	return ""
}

// NoField says that an object does not have a field, and suggests another one.
func NoField(of *schema.Type, name string) string {
	fields := slices.Sorted(maps.Keys(of.Fields))
	hint := Suggest(name, fields)
	if hint == "" {
		hint = suggestInside(name, of)
	}
	if hint == "" && len(fields) <= 8 {
		hint = "; it has " + strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s has no field %q%s", of.Name, name, hint)
}
