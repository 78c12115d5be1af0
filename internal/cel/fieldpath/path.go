// Package fieldpath has the paths that expressions name in a text, as in
// changed("spec.containers[*].image").
package fieldpath

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Path is the parsed argument of changed.
type Path []Step

// Step is a key, an index of an array if the value is one, or all elements of an array or values of
// a map.
type Step struct {
	Key   string
	Index int // -1: it can only be a key
	All   bool
	at    int // its position in the text
}

// Error is a mistake in the text of a path, with the position of its byte.
type Error struct {
	At     int
	reason string
}

func (e *Error) Error() string { return e.reason }

// in follows a path without [*]. It returns "" if a part of it is missing or obj is nil.
func (p Path) in(obj *event.Object) rawjson.Value {
	if obj == nil {
		return ""
	}
	v := obj.Raw()
	for _, s := range p {
		if v = s.of(v); v == "" {
			break
		}
	}
	return v
}

// of returns the value of the step; "" if there is none, or if it is a field with null.
func (s Step) of(v rawjson.Value) rawjson.Value {
	if v.Kind() == rawjson.Array {
		return element(v, s.Index)
	}
	if v = v.Get(s.Key); v.IsNull() {
		return ""
	}
	return v
}

func element(list rawjson.Value, index int) rawjson.Value {
	for elem := range list.Elems() {
		if index == 0 {
			return elem
		}
		index--
	}
	return ""
}

// wild returns the number of [*] in the path.
func (p Path) wild() (n int) {
	for _, s := range p {
		if s.All {
			n++
		}
	}
	return n
}

// met is a value at the end of a path with [*], with the keys of the maps that the [*] matched.
type met struct {
	keys  string
	value rawjson.Value
}

// meets returns the values at the path, in the order of lists and of the keys of maps. It reads the
// object once for each [*].
func (p Path) meets(obj *event.Object, m *jsonval.Meter) (all []met) {
	if obj == nil {
		return nil
	}
	m.Charge(p.wild() * len(obj.Raw()))
	p.each(obj.Raw(), "", func(keys string, v rawjson.Value) {
		m.Charge(64)
		all = append(all, met{keys, v})
	})
	slices.SortStableFunc(all, func(a, b met) int { return strings.Compare(a.keys, b.keys) })
	return all
}

func (p Path) each(v rawjson.Value, keys string, yield func(keys string, v rawjson.Value)) {
	for i, s := range p {
		if !s.All {
			if v = s.of(v); v == "" {
				return
			}
			continue
		}
		for elem := range v.Elems() {
			p[i+1:].each(elem, keys, yield)
		}
		for key, value := range v.Fields() {
			if !value.IsNull() {
				p[i+1:].each(value, keys+strconv.Quote(key), yield)
			}
		}
		return
	}
	yield(keys, v)
}

// Differs reports whether the values at the path differ between two objects.
func (p Path) Differs(was, is *event.Object, m *jsonval.Meter) bool {
	if p.wild() == 0 {
		before, after := p.in(was), p.in(is)
		m.Charge(len(before) + len(after))
		return !jsonval.Equal(before, after)
	}
	return !slices.EqualFunc(p.meets(was, m), p.meets(is, m), func(a, b met) bool {
		m.Charge(len(a.value) + len(b.value))
		return a.keys == b.keys && jsonval.Equal(a.value, b.value)
	})
}

// Exists reports whether the path has a value.
func (p Path) Exists(obj *event.Object, m *jsonval.Meter) bool {
	if p.wild() == 0 {
		return p.in(obj) != ""
	}
	return len(p.meets(obj, m)) > 0
}

// Parse parses metadata.labels["a.b/c"], status.conditions[0].type or spec.containers[*].image.
// Inside brackets the quotes may be left out. The error is a *pathError.
func Parse(text string) (Path, error) {
	var p Path
	for rest := text; rest != "" || len(p) == 0; {
		at := len(text) - len(rest)
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			s, after, reason := bracket(inner)
			if reason != "" {
				return nil, &Error{at, reason}
			}
			s.at = at + 1
			p, rest = append(p, s), after
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, &Error{at, "a name is missing; write it like status.conditions or metadata.labels[\"a.b/c\"]"}
			}
			p, rest = append(p, Step{Key: rest[:end], Index: -1, at: at}), rest[end:]
		}
		if after, ok := strings.CutPrefix(rest, "."); ok {
			if rest = after; rest == "" || rest[0] == '[' {
				return nil, &Error{len(text) - len(rest), "a name is missing after the dot"}
			}
		}
	}
	return p, nil
}

// bracket parses the text behind an opening bracket, including the closing one.
func bracket(s string) (found Step, rest, reason string) {
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		key, after, ok := strings.Cut(s[1:], s[:1]+"]")
		if !ok {
			return Step{}, "", s[:1] + "] is missing"
		}
		return Step{Key: key, Index: -1}, after, ""
	}
	key, after, ok := strings.Cut(s, "]")
	if !ok || key == "" {
		return Step{}, "", "a ] or the key in front of it is missing"
	}
	index, err := strconv.Atoi(key)
	if err != nil || index < 0 {
		index = -1
	}
	return Step{Key: key, Index: index, All: key == "*"}, after, ""
}

// Check follows the path through the type of an object, as far as its schema goes. It returns the
// first step that does not exist, and the reason.
func (p Path) Check(text string, t *schema.Type) *Error {
	inMap := false // the step before was the key of a map
	for i, s := range p {
		if t == nil {
			return nil
		}
		failed := func(format string, args ...any) *Error { return &Error{s.at, fmt.Sprintf(format, args...)} }
		of := t
		switch t.Kind {
		case schema.Any:
			return nil
		case schema.Map:
			t = t.Elem
		case schema.List:
			if !s.All && s.Index < 0 {
				return failed("%s is a list: take all its elements with [*], or one with [0]", before(text, s.at))
			}
			t = t.Elem
		case schema.Object:
			if s.All {
				return failed("[*] takes all of a list or map, and %s is neither: name a field of it", before(text, s.at))
			}
			f, ok := t.Fields[s.Key]
			if !ok {
				return failed("%s", typeset.NoField(t, s.Key))
			}
			t = f.Type
		default: // no object has it as its type, so a step precedes it
			if key := text[p[i-1].at:]; inMap && !strings.ContainsAny(key, `[]"'`) {
				return failed("%s has no fields; a key with dots stands in brackets: %s[%q]", before(text, s.at), before(text, p[i-1].at), key)
			}
			return failed("%s has no fields", before(text, s.at))
		}
		inMap = of.Kind == schema.Map
	}
	return nil
}

// before returns the text of the path in front of the step at an offset.
func before(text string, at int) string { return strings.TrimRight(text[:at], ".[") }

// Selector names an element by its keys: [containerPort=80,protocol="TCP"]. Keys that it lacks are
// left out.
func Selector(elem rawjson.Value, keys []string) string {
	var parts []string
	for _, key := range keys {
		v := elem.Get(key)
		if v.Kind() == rawjson.String {
			parts = append(parts, key+"="+strconv.Quote(v.Str()))
		} else if v != "" {
			parts = append(parts, key+"="+string(v))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Below adds a key to the text of a path, so that the result can be parsed.
func Below(path, key string) string {
	switch {
	case key == "" || key == "*" || strings.ContainsAny(key, ".[]\"' "):
		return path + `["` + key + `"]`
	case path == "":
		return key
	}
	return path + "." + key
}
