// Package fields finds the fields in which two states of an object differ, for people. An element
// of a list is named by its name or type, if all elements have one, as Kubernetes merges lists.
package fields

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// Change is a field with another value.
type Change struct {
	Path string `json:"path"` // status.conditions[type=Ready].status
	// From and To are the values as JSON, cut if they are long; empty: there is none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// maxValue bounds the text of a value, in bytes.
const maxValue = 200

// Compare returns the fields that differ, at most limit of them, and the number of the others.
// resourceVersion and managedFields, which differ in each change, do not count. A state that is no
// JSON, or empty, has no fields.
func Compare(before, after string, limit int) (changes []Change, more int) {
	c := comparison{limit: limit}
	c.compare("", parse(before), parse(after))
	return c.changes, c.more
}

func parse(text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

type comparison struct {
	changes []Change
	more    int
	limit   int
}

func (c *comparison) compare(path string, a, b any) {
	if path == "metadata.resourceVersion" || path == "metadata.managedFields" {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			c.maps(path, x, y)
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			c.lists(path, x, y)
			return
		}
	}
	from, to := textOf(a), textOf(b)
	switch {
	case from == to:
	case len(c.changes) == c.limit:
		c.more++
	default:
		c.changes = append(c.changes, Change{path, printable.Clean(from, maxValue), printable.Clean(to, maxValue)})
	}
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

func (c *comparison) maps(path string, a, b map[string]any) {
	keys := slices.Collect(maps.Keys(a))
	for key := range b {
		if _, both := a[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		c.compare(below(path, key), a[key], b[key])
	}
}

// below returns the path of a key of a mapping.
func below(path, key string) string {
	text := kept.Join([]string{key})
	if path == "" || strings.HasPrefix(text, "[") {
		return path + text
	}
	return path + "." + text
}

func (c *comparison) lists(path string, a, b []any) {
	for _, key := range []string{"name", "type"} {
		x, okA := named(a, key)
		y, okB := named(b, key)
		if !okA || !okB || len(a)+len(b) == 0 {
			continue
		}
		names := slices.Collect(maps.Keys(x))
		for name := range y {
			if _, both := x[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			c.compare(fmt.Sprintf("%s[%s=%s]", path, key, name), x[name], y[name])
		}
		return
	}
	for i := range max(len(a), len(b)) {
		var x, y any
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		c.compare(fmt.Sprintf("%s[%d]", path, i), x, y)
	}
}

// named returns the elements of a list by the text that each has under a key; ok is false if that
// does not name them.
func named(list []any, key string) (all map[string]any, ok bool) {
	all = make(map[string]any, len(list))
	for _, element := range list {
		o, isMap := element.(map[string]any)
		name, isText := o[key].(string)
		if _, twice := all[name]; !isMap || !isText || twice {
			return nil, false
		}
		all[name] = element
	}
	return all, true
}
