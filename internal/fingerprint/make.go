package fingerprint

import (
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/rawjson"
)

// The kinds of values.
const (
	textKind   = 's'
	timeKind   = 't' // a text that is a time
	numberKind = 'n'
	boolKind   = 'b'
	objectKind = 'o' // beyond the bounds
	arrayKind  = 'a' // beyond the bounds
)

// maker makes the fingerprints of one object.
type maker struct {
	*hasher

	b      []byte
	values int
}

// Of returns the fingerprints of an object; empty if k is nil.
func (k *Key) Of(uid string, object rawjson.Value) string {
	if k == nil {
		return ""
	}
	m := &maker{hasher: k.hasher(uid)}
	m.members(object, 0, func(name string) bool { return name == "apiVersion" || name == "kind" })
	return string(m.b)
}

// isIdentity reports whether a field of metadata is part of the identity.
func isIdentity(name string) bool {
	switch name {
	case "name", "namespace", "uid", "resourceVersion":
		return true
	}
	return false
}

func (m *maker) members(object rawjson.Value, depth int, skip func(name string) bool) {
	m.b = append(m.b, '{')
	for name, v := range object.Fields() {
		if skip != nil && skip(name) {
			continue
		}
		m.comma()
		m.b = append(rawjson.AppendString(m.b, name), ':')
		m.within(name, func() {
			if depth == 0 && name == "metadata" && v.Kind() == rawjson.Object {
				m.members(v, depth+1, isIdentity)
			} else {
				m.value(v, depth+1)
			}
		})
	}
	m.b = append(m.b, '}')
}

func (m *maker) comma() {
	if last := m.b[len(m.b)-1]; last != '{' && last != '[' {
		m.b = append(m.b, ',')
	}
}

func (m *maker) value(v rawjson.Value, depth int) {
	kind, text := kindOf(v)
	switch kind {
	case 0:
		m.b = append(m.b, "null"...)
		return
	case objectKind, arrayKind:
		if m.fits(v, depth) {
			m.container(v, kind, depth)
			return
		}
	}
	m.values++
	m.b = rawjson.AppendString(m.b, m.sum(kind, text))
}

func (m *maker) container(v rawjson.Value, kind byte, depth int) {
	if kind == objectKind {
		m.members(v, depth, nil)
		return
	}
	m.b = append(m.b, '[')
	n := 0
	for element := range v.Elems() {
		m.comma()
		m.within(strconv.Itoa(n), func() { m.value(element, depth+1) })
		n++
	}
	m.b = append(m.b, ']')
}

// fits reports whether the fields of a container have hashes of their own.
func (m *maker) fits(v rawjson.Value, depth int) bool {
	n := 0
	count := func() bool {
		n++
		return n <= min(MaxFields, MaxValues-m.values)
	}
	if v.Kind() == rawjson.Object {
		for range v.Fields() {
			if !count() {
				return false
			}
		}
	} else {
		for range v.Elems() {
			if !count() {
				return false
			}
		}
	}
	return depth <= MaxDepth
}

// kindOf returns the kind of a value and the text that is hashed; 0: it is null.
func kindOf(v rawjson.Value) (kind byte, text string) {
	switch v.Kind() {
	case rawjson.Object:
		return objectKind, string(v)
	case rawjson.Array:
		return arrayKind, string(v)
	case rawjson.String:
		if text = v.Str(); isTime(text) {
			return timeKind, text
		}
		return textKind, text
	case rawjson.Number:
		return numberKind, string(v)
	case rawjson.Bool:
		return boolKind, string(v)
	case rawjson.Absent, rawjson.Null:
	}
	return 0, ""
}

func isTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05Z") || len(text) > len(time.RFC3339Nano) {
		return false
	}
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
