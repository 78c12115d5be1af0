package expr

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// Read is a place where an expression reads a field of the object or the old object itself, as spec.
type Read struct {
	Define       string // in whose text it stands; empty: the expression's own
	Line, Column int    // counted as in [Issue]
	Field        string
}

// Reads returns where the expression, or a define that it uses, reads fields at the top of the object, in the order of the texts. What
// is read under a computed name is not known.
func (p *Program) Reads() []Read {
	var reads []Read
	for _, u := range p.units {
		tree := u.ast.NativeRep()
		walk(tree.Expr(), nil, func(e ast.Expr, local []string) {
			field, ok := topField(e, local)
			if !ok {
				return
			}
			place := tree.SourceInfo().GetStartLocation(e.ID())
			reads = append(reads, Read{Define: u.define, Line: max(1, place.Line()), Column: max(0, place.Column()), Field: field})
		})
	}
	return reads
}

// topField returns the field that object.field, object["field"], object.?field and changed("field…") read.
func topField(e ast.Expr, local []string) (string, bool) {
	isObject := func(e ast.Expr) bool {
		return e.Kind() == ast.IdentKind && (e.AsIdent() == nameObject || e.AsIdent() == nameOldObject) && !slices.Contains(local, e.AsIdent())
	}
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().FieldName(), isObject(e.AsSelect().Operand())
	}
	if e.Kind() != ast.CallKind {
		return "", false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.Index, operators.OptSelect, operators.OptIndex:
		field, ok := literal(args[1])
		return field, ok && isObject(args[0])
	case fnChanged:
		if text, ok := literal(args[0]); ok {
			if path, err := parsePath(text); err == nil {
				return path[0].key, true
			}
		}
	}
	return "", false
}
