package check

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
)

// Usage is the purpose of an expression. It decides which variables and functions the expression
// may use, and the type of its result.
type Usage uint8

// The usages.
const (
	// Filter is a bool; see [cel.Program.Match].
	Filter Usage = iota + 1
	// Index is a string, number or bool, or a list or map of them, from object, source and cluster
	// alone; see [cel.Program.Keys].
	Index
	// Emit is a map or a list of maps; see [cel.Program.Emit].
	Emit
	// Key is a string, int or bool; see [cel.Program.Key].
	Key
	// Query is a bool, as cheap as an Index has to be, because it is evaluated for many objects;
	// see [cel.Program.Match].
	Query
	// Value is of any type; see [cel.Program.Value].
	Value
	// Objects are objects that lookup, list or get has found, or one of them; see
	// [cel.Env.CompileObjects].
	Objects
	// When is a bool from object, now, source and cluster alone: a condition that depends on
	// nothing but the object and the time; see [cel.Program.Match].
	When
)

// resultProblem returns the reason why a result of this type is not allowed, or "".
func resultProblem(t *cel.Type, usage Usage) string {
	want, ok := "", false
	switch usage {
	case Filter, Query, When:
		want, ok = "true or false", t.Kind() == types.BoolKind
	case Index:
		t = syntax.UnwrapOptional(t)
		want = "a string, a number, a bool, or a list or map of them"
		ok = isKeyType(t)
	case Emit:
		t = syntax.UnwrapOptional(t)
		want = "a map or a list of maps"
		if ok = isEvent(t); !ok && t.Kind() == types.ListKind {
			ok = len(t.Parameters()) != 1 || isEvent(t.Parameters()[0]) || t.Parameters()[0].Kind() == types.DynKind || t.Parameters()[0].Kind() == types.TypeParamKind
		}
	case Key:
		want = "a string, an int or a bool"
		ok = t.Kind() == types.StringKind || t.Kind() == types.IntKind || t.Kind() == types.UintKind || t.Kind() == types.BoolKind
	case Value:
		ok = true
	case Objects:
		want = "objects that lookup, list or get has found"
		ok = isObjects(t)
	default:
		return fmt.Sprintf("unknown usage %d", usage)
	}
	if ok || t.Kind() == types.DynKind {
		return ""
	}
	return fmt.Sprintf("the result must be %s, but it is of type %s", want, cel.FormatCELType(t))
}

// isKeyType reports whether an index may have a result of this type, or a list or map of it. The
// keys of a map count.
func isKeyType(t *cel.Type) bool {
	if kind := t.Kind(); (kind == types.ListKind || kind == types.MapKind) && len(t.Parameters()) > 0 {
		t = syntax.UnwrapOptional(t.Parameters()[0])
	}
	switch t.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.NullTypeKind, types.DynKind, types.TypeParamKind:
		return true
	default:
		return false
	}
}

// isEvent reports whether values of the type are the data of an event, or an event with a type or
// subject.
func isEvent(t *cel.Type) bool {
	return t.Kind() == types.MapKind || t.Kind() == types.StructKind || t.IsExactType(typeset.EventType)
}

// isObjects reports whether a result of this type may be objects.
func isObjects(t *cel.Type) bool {
	if t.Kind() != types.ListKind || len(t.Parameters()) != 1 {
		return t.Kind() == types.StructKind || t.Kind() == types.ListKind
	}
	switch t = syntax.UnwrapOptional(t.Parameters()[0]); t.Kind() {
	case types.StructKind, types.DynKind, types.TypeParamKind:
		return true
	default:
		return false
	}
}
