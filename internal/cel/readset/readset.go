// Package readset finds the fields of objects that an expression reads. Its answer may have too
// many fields, but never too few: a field outside of it has no effect on the result.
//
// It follows the values of the variables object and oldObject, and of the functions that find
// objects, through selections, loops, optionals and defines. A value that goes anywhere else, as
// into another function or into the result, is read as a whole.
package readset

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/kept"
)

// Own is the name of the source of the expression's own object in [Of].
const Own = ""

// Expression is a checked expression, in which the calls of our functions are resolved.
type Expression struct {
	Tree    *ast.AST
	Changed []fieldpath.Path // the paths of the calls of changed()
	Owners  []string         // the sources that controller() follows
	// Named: the result names objects, of which only the identity is read.
	Named bool
}

// Of returns the fields that an expression reads, by the source of the objects: its own objects are
// those of [Own].
func Of(e Expression) map[string]kept.Set {
	r := &reader{Expression: e, read: make(map[string]*fields)}
	for _, p := range r.value(e.Tree.Expr(), nil) {
		if e.Named && len(p.path) == 0 && !p.owner {
			r.touch(value{p})
		} else {
			r.use(value{p})
		}
	}
	sets := make(map[string]kept.Set, len(r.read))
	for source, f := range r.read {
		sets[source] = f.set()
	}
	return sets
}

// fields are the fields of the objects of a source that are read: the whole values at some paths,
// and the existence or the number of elements of the values at others.
type fields struct{ whole, touched [][]string }

// set returns the fields to keep. A field above another one is kept, empty or not, so a touched
// field is kept as a whole only if nothing below it is read.
func (f *fields) set() kept.Set {
	all := slices.Clone(f.whole)
	for _, path := range f.touched {
		if len(path) > 0 && !slices.ContainsFunc(f.whole, func(read []string) bool {
			return len(read) >= len(path) && slices.Equal(read[:len(path)], path)
		}) {
			all = append(all, path)
		}
	}
	return kept.Of(all...)
}

// part is a part of an object.
type part struct {
	source string
	path   []string
	// owner: it is the record of a call of controller(), whose member object is the object.
	owner bool
}

// value is the possible origins of the value of an expression; those of a list are those of its
// elements. The value of an expression without origins was read already, or is not of an object.
type value []part

func (v value) or(other value) value {
	all := slices.Clone(v)
	for _, p := range other {
		if !slices.ContainsFunc(all, func(known part) bool {
			return known.source == p.source && known.owner == p.owner && slices.Equal(known.path, p.path)
		}) {
			all = append(all, p)
		}
	}
	return all
}

type reader struct {
	Expression

	read map[string]*fields // by source
}

func (r *reader) of(source string) *fields {
	if r.read[source] == nil {
		r.read[source] = &fields{}
	}
	return r.read[source]
}

// use notes that a value is read as a whole.
func (r *reader) use(v value) {
	for _, p := range v {
		f := r.of(p.source)
		f.whole = append(f.whole, p.path)
	}
}

// touch notes that only the existence of a value, or the number of its elements, matters.
func (r *reader) touch(v value) {
	for _, p := range v {
		if p.owner {
			continue // it exists if the object does
		}
		f := r.of(p.source)
		f.touched = append(f.touched, p.path)
	}
}

// longest is the number of keys of a path from which the value is read as a whole.
const longest = 32

// member returns the origins of a member of a value.
func (r *reader) member(v value, key string) (members value) {
	for _, p := range v {
		switch {
		case p.owner && key == "object":
			members = append(members, part{source: p.source})
			continue
		case p.owner:
			continue
		case len(p.path) == longest:
			r.use(value{p})
			continue
		}
		for _, name := range names(key) {
			members = append(members, part{source: p.source, path: append(slices.Clone(p.path), name)})
		}
	}
	return members
}

// names returns the names that a key may have in the text of an object: the types of objects write
// some of them in another way.
func names(key string) []string {
	if name, ok := apiservercel.Unescape(key); ok && name != key {
		return []string{key, name}
	}
	return []string{key}
}

func (r *reader) kind(e ast.Expr) types.Kind { return r.Tree.GetType(e.ID()).Kind() }

func (r *reader) isList(e ast.Expr) bool { return r.kind(e) == types.ListKind }

// value returns the origins of the value of an expression, and notes what its parts read.
func (r *reader) value(e ast.Expr, vars map[string]value) value {
	switch e.Kind() {
	case ast.IdentKind:
		return r.variable(e.AsIdent(), vars)
	case ast.SelectKind:
		v := r.member(r.value(e.AsSelect().Operand(), vars), e.AsSelect().FieldName())
		if e.AsSelect().IsTestOnly() {
			r.touch(v)
			return nil
		}
		return v
	case ast.CallKind:
		return r.call(e, vars)
	case ast.ListKind:
		return r.oneOf(e.AsList().Elements(), vars)
	case ast.ComprehensionKind:
		return r.loop(e.AsComprehension(), vars)
	case ast.MapKind, ast.StructKind, ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	r.useAll(syntax.PartsOf(e), vars)
	return nil
}

func (r *reader) useAll(parts []ast.Expr, vars map[string]value) {
	for _, part := range parts {
		r.use(r.value(part, vars))
	}
}

func (r *reader) variable(name string, vars map[string]value) value {
	if v, ok := vars[name]; ok {
		return v
	}
	switch name {
	case syntax.VarObject, syntax.VarOldObject, syntax.VarObjects:
		return value{{source: Own}}
	}
	return nil
}
