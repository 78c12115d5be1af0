package equality

import (
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/internal/expr/jsonval"
	"github.com/deltarouter/deltarouter/internal/expr/syntax"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Field is what an [Equality] is about: a place in the object or the old object, or the op or the
// source of a delta.
type Field struct {
	// ID is the same for fields that read the same.
	ID string

	root     root
	path     []string
	presence bool // whether it is there, not what it is
	hope     int  // from which step on it may be missing, counted from 1; 0: nowhere
	kind     kind
	fallback string // what it is then
}

// root is where a field starts.
type root uint8

const (
	fromObject root = iota + 1
	fromOld
	fromOp
	fromSource
)

// kind is what values a field is compared with. It is 0 until that is known.
type kind uint8

const (
	stringKind kind = iota + 1
	intKind
	boolKind
)

// Reading is what became of reading a field.
type Reading uint8

// The readings.
const (
	// Unclear: the value is of another kind than what it is compared with, or stands in something
	// that has no fields. What the expression makes of that it has to be asked for.
	Unclear Reading = iota
	// Missing: the field is not there, which is an error with [celerr.ErrAbsent], see
	// [Equality.Absent]. The value is the key that is missing.
	Missing
	Known
)

// Fixed tells whether the field is the op or the source. They are the same for all deltas of a
// source and op.
func (f *Field) Fixed() bool { return f.root == fromOp || f.root == fromSource }

// Always tells whether every object has the field.
func (f *Field) Always() bool {
	return f.root == fromObject && len(f.path) == 2 && f.path[0] == "metadata" && (f.path[1] == "name" || f.path[1] == "namespace")
}

// IsOp tells whether the field is the op.
func (f *Field) IsOp() bool { return f.root == fromOp }

// IsSource tells whether the field is the source.
func (f *Field) IsSource() bool { return f.root == fromSource }

// IsNamespace tells whether the field is the namespace of the object, and not whether it has one.
func (f *Field) IsNamespace() bool { return f.Always() && f.path[1] == "namespace" && !f.presence }

// maxDigits is how many digits a whole number may have to be compared by its text.
const maxDigits = 18

// Read returns the field's value in a delta: a string as it is, a whole number in decimal digits, a
// bool (also whether a field is there) as true or false. It does not use up the cost limit: it
// reads the object's text at most once.
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
	open := string(obj.Raw())
	for i, key := range f.path {
		if open[0] != '{' {
			return "", Unclear
		}
		if open = rawjson.Member(open, key); open == "" {
			return f.missing(i)
		}
	}
	return f.value(open)
}

// ReadVia is ReadIn for an object that is read for several fields, one after the other.
func (f *Field) ReadVia(root *jsonval.Root, text string) (value string, reading Reading) {
	open, _ := root.Locate(text, f.path[0])
	if open == "" {
		return f.missing(0)
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

// missing is the reading where a step of the path leads nowhere.
func (f *Field) missing(step int) (string, Reading) {
	switch {
	case f.presence && step == len(f.path)-1:
		return "false", Known
	case f.hope > 0 && step >= f.hope-1:
		return f.fallback, Known
	}
	return f.path[step], Missing
}

// value reads what the text begins with.
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

// step goes on to a field by its name. A name with two underscores may be an escaped one, which has
// another key.
func (f *Field) step(name string) bool {
	return !strings.Contains(name, "__") && f.element(name)
}

// element goes on to the value of a key.
func (f *Field) element(key string) bool {
	f.path = append(f.path, key)
	return !f.Fixed()
}

// optional makes the next step one that may lead nowhere.
func (f *Field) optional() {
	if f.hope == 0 {
		f.hope = len(f.path) + 1
	}
}

// final reports whether nothing can follow.
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

// name sets the ID of a field that is complete.
func (f *Field) name() {
	id := []byte{'0' + byte(f.root), '0' + byte(f.kind)}
	id = strconv.AppendBool(id, f.presence)
	id = strconv.AppendInt(id, int64(f.hope), 10)
	for _, key := range append(f.path, f.fallback) {
		id = strconv.AppendQuote(id, key)
	}
	f.ID = string(id)
}
