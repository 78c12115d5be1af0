package expr

import (
	"slices"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rawjson"
)

// path is the argument of changed, parsed when the expression was compiled.
type path []step

// step is a key, an index of an array where the value is one, or all elements of an array or values of a map.
type step struct {
	key   string
	index int // -1: it can only be a key
	all   bool
	at    int // where it begins in the text
}

// pathError is a mistake in the text of a path, and at which of its bytes.
type pathError struct {
	at     int
	reason string
}

func (e *pathError) Error() string { return e.reason }

// in follows a path without [*]. It returns "" where a part of it is missing or obj is nil.
func (p path) in(obj *event.Object) rawjson.Value {
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

func (s step) of(v rawjson.Value) rawjson.Value {
	if v.Kind() == rawjson.Array {
		return element(v, s.index)
	}
	return v.Get(s.key)
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

// wild reports how many [*] the path has.
func (p path) wild() (n int) {
	for _, s := range p {
		if s.all {
			n++
		}
	}
	return n
}

// met is a value that a path with [*] leads to, with the keys of the maps that it went through by a [*].
type met struct {
	keys  string
	value rawjson.Value
}

// meets returns what the path leads to, in the order of lists and of the keys of maps. It reads the object once for each [*].
func (p path) meets(obj *event.Object, m *meter) (all []met) {
	if obj == nil {
		return nil
	}
	m.charge(p.wild() * len(obj.Raw()))
	p.each(obj.Raw(), "", func(keys string, v rawjson.Value) {
		m.charge(64)
		all = append(all, met{keys, v})
	})
	slices.SortStableFunc(all, func(a, b met) int { return strings.Compare(a.keys, b.keys) })
	return all
}

func (p path) each(v rawjson.Value, keys string, yield func(keys string, v rawjson.Value)) {
	for i, s := range p {
		if !s.all {
			if v = s.of(v); v == "" {
				return
			}
			continue
		}
		for elem := range v.Elems() {
			p[i+1:].each(elem, keys, yield)
		}
		for key, value := range v.Fields() {
			p[i+1:].each(value, keys+strconv.Quote(key), yield)
		}
		return
	}
	yield(keys, v)
}

// differs reports whether the path meets other values in one object than in the other.
func (p path) differs(was, is *event.Object, m *meter) bool {
	if p.wild() == 0 {
		before, after := p.in(was), p.in(is)
		m.charge(len(before) + len(after))
		return !equal(before, after)
	}
	return !slices.EqualFunc(p.meets(was, m), p.meets(is, m), func(a, b met) bool {
		m.charge(len(a.value) + len(b.value))
		return a.keys == b.keys && equal(a.value, b.value)
	})
}

// exists reports whether the path leads anywhere.
func (p path) exists(obj *event.Object, m *meter) bool {
	if p.wild() == 0 {
		return p.in(obj) != ""
	}
	return len(p.meets(obj, m)) > 0
}

// parsePath reads metadata.labels["a.b/c"], status.conditions[0].type or spec.containers[*].image. Inside brackets the quotes may be left
// out. The error is a *pathError.
func parsePath(text string) (path, error) {
	var p path
	for rest := text; rest != "" || len(p) == 0; {
		at := len(text) - len(rest)
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			s, after, reason := bracket(inner)
			if reason != "" {
				return nil, &pathError{at, reason}
			}
			s.at = at + 1
			p, rest = append(p, s), after
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, &pathError{at, "a name is missing; write it like status.conditions or metadata.labels[\"a.b/c\"]"}
			}
			p, rest = append(p, step{key: rest[:end], index: -1, at: at}), rest[end:]
		}
		if after, ok := strings.CutPrefix(rest, "."); ok {
			if rest = after; rest == "" || rest[0] == '[' {
				return nil, &pathError{len(text) - len(rest), "a name is missing after the dot"}
			}
		}
	}
	return p, nil
}

// bracket reads what follows an opening bracket, up to and with the closing one.
func bracket(s string) (found step, rest, reason string) {
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		key, after, ok := strings.Cut(s[1:], s[:1]+"]")
		if !ok {
			return step{}, "", s[:1] + "] is missing"
		}
		return step{key: key, index: -1}, after, ""
	}
	key, after, ok := strings.Cut(s, "]")
	if !ok || key == "" {
		return step{}, "", "a ] or the key in front of it is missing"
	}
	index, err := strconv.Atoi(key)
	if err != nil || index < 0 {
		index = -1
	}
	return step{key: key, index: index, all: key == "*"}, after, ""
}

// below adds a key to the text of a path, so that it can be read again.
func below(path, key string) string {
	switch {
	case key == "" || key == "*" || strings.ContainsAny(key, ".[]\"' "):
		return path + `["` + key + `"]`
	case path == "":
		return key
	}
	return path + "." + key
}
