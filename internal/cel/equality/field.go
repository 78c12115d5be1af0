package equality

import (
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Field is the subject of an [Equality]: a place in the object or the old object, or the op or the
// source of a delta.
type Field struct {
	// ID is equal for fields with the same value.
	ID string

	root     root
	path     []string
	presence bool // the presence of the value, not the value
	hope     int  // the first step that may be missing, counted from 1; 0: none
	kind     kind
	fallback string // the value of an absent field
}

// root is where a field starts.
type root uint8

const (
	fromObject root = iota + 1
	fromOld
	fromOp
	fromSource
)

// kind is the kind of the values that a field is compared with; 0: not known yet.
type kind uint8

const (
	stringKind kind = iota + 1
	intKind
	boolKind
)

// Reading is the result of reading a field.
type Reading uint8

// The readings.
const (
	// Unclear: the value and the value that it is compared with differ in kind, or its parent has
	// no fields. The expression has to be evaluated for the result.
	Unclear Reading = iota
	// Missing: the field is absent, which is an error with [celerr.ErrAbsent], see
	// [Equality.Absent]. The value is the missing key.
	Missing
	Known
)

// Fixed reports whether the field is the op or the source. They are the same for all deltas of a
// source and op.
func (f *Field) Fixed() bool { return f.root == fromOp || f.root == fromSource }

// Always reports whether every object has the field.
func (f *Field) Always() bool {
	return f.root == fromObject && len(f.path) == 2 && f.path[0] == "metadata" && (f.path[1] == "name" || f.path[1] == "namespace")
}

// IsOp reports whether the field is the op.
func (f *Field) IsOp() bool { return f.root == fromOp }

// IsSource reports whether the field is the source.
func (f *Field) IsSource() bool { return f.root == fromSource }

// IsNamespace reports whether the field is the namespace of the object, and not its presence.
func (f *Field) IsNamespace() bool { return f.Always() && f.path[1] == "namespace" && !f.presence }

// maxDigits is the largest number of digits of a whole number that is compared by its text.
const maxDigits = 18

// Read returns the field's value in a delta: a string as it is, a whole number in decimal digits, a
// bool (also the presence of a field) as true or false. It does not use up the cost limit: it reads
// the object's text at most once.
func (f *Field) Read(d *event.Delta) (value string, r Reading) {
	switch f.root {
	case fromOp:
		return d.Op.String(), Known
	case fromSource:
		return d.Source, Known
	case fromOld:
		return f.ReadIn(d.Old)
	case fromObject:
	}
	return f.ReadIn(d.Object())
}

// ReadIn is Read for a field of objects.
func (f *Field) ReadIn(obj *event.Object) (value string, r Reading) {
	if obj == nil {
		return "", Unclear
	}
	open := obj.Member(f.path[0])
	if open == "" {
		return f.missing(0)
	}
	for i := 1; i < len(f.path); i++ {
		if open[0] != '{' {
			return "", Unclear
		}
		if open = rawjson.Member(open, f.path[i]); open == "" {
			return f.missing(i)
		}
	}
	return f.value(open)
}

// ReadVia is ReadIn with shared positions, for reading several fields of one object.
func (f *Field) ReadVia(root *jsonval.Root, obj *event.Object) (value string, reading Reading) {
	text, open := string(obj.Raw()), obj.Place(f.path[0])
	if open == "" {
		if open, _ = root.Locate(text, f.path[0]); open == "" {
			return f.missing(0)
		}
	}
	at := len(text) - len(open)
	for i := 1; i < len(f.path); i++ {
		if open[0] != '{' {
			return "", Unclear
		}
		if open = rawjson.Member(open, f.path[i]); open == "" {
			return f.missing(i)
		}
		root.Passed(at, len(text)-len(open), i)
	}
	return f.value(open)
}

// missing returns the reading for a missing step of the path.
func (f *Field) missing(step int) (string, Reading) {
	switch {
	case f.presence && step == len(f.path)-1:
		return "false", Known
	case f.hope > 0 && step >= f.hope-1:
		return f.fallback, Known
	}
	return f.path[step], Missing
}

// value reads the value at the start of the text.
func (f *Field) value(open string) (string, Reading) {
	if f.presence {
		if open[0] == 'n' {
			return "", Unclear
		}
		return "true", Known
	}
	switch c := open[0]; {
	case c == '"' && f.kind == stringKind:
		return rawjson.Closed(open).Str(), Known
	case (c == 't' || c == 'f') && f.kind == boolKind:
		return string(rawjson.Closed(open)), Known
	case (c == '-' || c >= '0' && c <= '9') && f.kind == intKind:
		if n := string(rawjson.Closed(open)); len(n) <= maxDigits && n != "-0" && !strings.ContainsAny(n, ".eE") {
			return n, Known
		}
	}
	return "", Unclear
}

// from starts a field at a variable.
func (f *Field) from(name string) bool {
	switch name {
	case syntax.VarObject:
		f.root = fromObject
	case syntax.VarOldObject:
		f.root = fromOld
	case syntax.VarOp:
		f.root, f.kind = fromOp, stringKind
	case syntax.VarSource:
		f.root, f.kind = fromSource, stringKind
	default:
		return false
	}
	return true
}

// step descends into a field. A name with two underscores may be an escaped one, whose key differs.
func (f *Field) step(name string) bool {
	return !strings.Contains(name, "__") && f.element(name)
}

// element descends into the value of a key.
func (f *Field) element(key string) bool {
	f.path = append(f.path, key)
	return !f.Fixed()
}

// optional makes the next step an optional one.
func (f *Field) optional() {
	if f.hope == 0 {
		f.hope = len(f.path) + 1
	}
}

// final reports whether no step can follow.
func (f *Field) final() bool { return f.presence || f.hope > 0 && f.kind != 0 }

// fits reports whether the field can be compared with values of a kind.
func (f *Field) fits(k kind) bool {
	switch {
	case f.presence:
		return k == boolKind
	case f.kind != 0: // of the delta itself, or with a fallback
		return k == f.kind
	}
	return f.hope == 0
}

// name sets the ID of a complete field.
func (f *Field) name() {
	id := []byte{'0' + byte(f.root), '0' + byte(f.kind)}
	id = strconv.AppendBool(id, f.presence)
	id = strconv.AppendInt(id, int64(f.hope), 10)
	for _, key := range append(f.path, f.fallback) {
		id = strconv.AppendQuote(id, key)
	}
	f.ID = string(id)
}
