package schema

import "strings"

// Plural reports whether a resource is probably that of a kind, by their names.
func Plural(kind, resource string) bool {
	kind = strings.ToLower(kind)
	return resource == kind || resource == kind+"s" || resource == kind+"es" || resource == strings.TrimSuffix(kind, "y")+"ies"
}
