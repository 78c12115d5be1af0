package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

func (o *optionals) find() {
	o.inner, o.converted = make(map[int64]bool), make(map[int64]ast.Expr)
	root := o.unit.AST.NativeRep().Expr()
	syntax.Walk(root, nil, func(e ast.Expr, _ []string) {
		if operand, ok := syntax.OperandOf(e); ok {
			o.inner[operand.ID()] = true
		}
		switch {
		case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
			o.guards[syntax.PathOf(e)] = true
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In:
			o.guards[syntax.PathOf(e.AsCall().Args()[1])+"["+syntax.PathOf(e.AsCall().Args()[0])+"]"] = true
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "hasValue":
			o.guard(e.AsCall().Target())
		case e.Kind() == ast.ComprehensionKind: // the body runs only if the list or map exists
			o.guard(e.AsComprehension().IterRange())
		}
		if IsConversion(e) {
			o.converted[e.AsCall().Args()[0].ID()] = e
			o.warnEmpty(e)
		}
	})
	warned := make(map[string]bool)
	syntax.Walk(root, nil, func(e ast.Expr, _ []string) {
		if _, ok := syntax.OperandOf(e); !ok || o.inner[e.ID()] {
			return
		}
		if step := o.firstOptional(e); step != nil && !warned[syntax.PathOf(step)] {
			warned[syntax.PathOf(step)] = true
			o.warn(e, step, o.converted[e.ID()] != nil)
		}
	})
}

// guard records the fields of a chain behind .? as present in the guarded part.
func (o *optionals) guard(e ast.Expr) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "orValue" {
		e = e.AsCall().Target()
	}
	optional := false
	var paths []string
	for {
		operand, ok := syntax.OperandOf(e)
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect {
			operand, ok, optional = e.AsCall().Args()[0], true, true
		}
		if !ok {
			break
		}
		paths = append(paths, syntax.PathOf(e))
		e = operand
	}
	for _, path := range paths {
		if optional {
			o.guards[path] = true
		}
	}
}

// IsConversion reports whether an expression is a call that fails for an empty text.
func IsConversion(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction() && len(e.AsCall().Args()) == 1 && slices.Contains([]string{
		"timestamp", "duration", "quantity", "int", "uint", "double", "bool", "url", "ip", "cidr", "semver",
	}, e.AsCall().FunctionName())
}

// warnEmpty warns of a conversion of an optional value whose default is an empty text.
func (o *optionals) warnEmpty(conversion ast.Expr) {
	function, arg := conversion.AsCall().FunctionName(), conversion.AsCall().Args()[0]
	if arg.Kind() != ast.CallKind || arg.AsCall().FunctionName() != "orValue" || len(arg.AsCall().Args()) != 1 {
		return
	}
	if text, ok := syntax.Literal(arg.AsCall().Args()[0]); !ok || text != "" {
		return
	}
	place := o.unit.AST.NativeRep().SourceInfo().GetStartLocation(arg.ID())
	w := Warning{Define: o.unit.Define}
	// the position of the parenthesis
	w.Line, w.Column = max(1, place.Line()), max(0, place.Column()-len("orValue"))
	w.Message = fmt.Sprintf(`%s("") fails, and the delta with it; check first whether it exists, with hasValue() in place of orValue("")`, function)
	o.warnings = append(o.warnings, w)
}

// firstOptional returns the first step of a chain that may be absent.
func (o *optionals) firstOptional(e ast.Expr) (first ast.Expr) {
	for {
		operand, ok := syntax.OperandOf(e)
		if !ok {
			return first
		}
		if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() && !o.guards[syntax.PathOf(e)] && o.mayLack(operand, e.AsSelect().FieldName()) {
			first = e
		}
		e = operand
	}
}

// mayLack reports whether objects of the operand's type may lack the field.
func (o *optionals) mayLack(operand ast.Expr, field string) bool {
	t := o.unit.AST.NativeRep().GetType(operand.ID())
	if t.Kind() != types.StructKind {
		return false
	}
	object := o.scope.Schema(t.TypeName())
	if object == nil {
		return false
	}
	for name, f := range object.Fields {
		if slices.Contains(jsonval.CELNames(name), field) {
			return !f.Required && !isCertain(object, name)
		}
	}
	return false
}

// isCertain reports whether a field is always there: every object has it, its schema requires it,
// or it is a part of nearly every object.
func isCertain(of *schema.Type, field string) bool {
	if _, root := of.Fields["metadata"]; root {
		return slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "status"}, field)
	}
	return strings.HasSuffix(of.Name, "ObjectMeta") &&
		slices.Contains([]string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation"}, field)
}

// warn adds a warning: chain is the whole chain of fields, step the part that may be absent.
// converted: an empty text is no useful default.
func (o *optionals) warn(chain, step ast.Expr, converted bool) {
	text := o.unit.Text()
	line, column := o.unit.Start(step)
	w := Warning{Define: o.unit.Define}
	w.Line, w.Column = syntax.AfterDot(text, line, column)
	written := o.written(step)
	w.Message = written + " may be absent, " + o.consequence()
	fallback, _ := fallbackOf(o.unit.AST.NativeRep().GetType(chain.ID()))
	mended := o.mended(text, chain, step, fallback)
	asked, mendable := strings.CutSuffix(mended, ".orValue("+fallback+")")
	switch {
	case converted && mendable:
		w.Message += "; if that is not intended, check first whether it exists: " + asked + ".hasValue() && …"
		if o.usage == Emit || o.usage == Key {
			w.Message = strings.TrimSuffix(w.Message, "&& …") + "? … : …"
		}
	case mended != "":
		w.Message += "; if that is not intended: " + mended
	default:
		w.Message += "; if that is not intended, check with has(" + written + ")"
	}
	o.warnings = append(o.warnings, w)
}

func (o *optionals) consequence() string {
	switch o.usage {
	case Filter, Query, When:
		return "and nothing matches then"
	case Key:
		return "and the object itself is the key then"
	default:
		return "and the delta fails then"
	}
}

// mended returns the chain as it is written, with .? and a default; "" if that would not compile.
func (o *optionals) mended(text string, chain, step ast.Expr, fallback string) string {
	info := o.unit.AST.NativeRep().SourceInfo()
	start, known := info.GetOffsetRange(syntax.RootOf(chain).ID())
	dot, known2 := info.GetOffsetRange(step.ID())
	end, known3 := info.GetOffsetRange(chain.ID())
	runes := []rune(text)
	if fallback == "" || !known || !known2 || !known3 || int(dot.Start) >= len(runes) || runes[dot.Start] != '.' || syntax.RootOf(chain).Kind() != ast.IdentKind {
		return ""
	}
	stop := syntax.EndOfStep(runes, int(end.Start))
	if stop < 0 || start.Start > dot.Start {
		return ""
	}
	mended := string(runes[start.Start:dot.Start+1]) + "?" + string(runes[dot.Start+1:stop]) + ".orValue(" + fallback + ")"
	whole := string(runes[:start.Start]) + mended + string(runes[stop:])
	if strings.Contains(mended, "\n") || !o.scope.Compiles(whole) {
		return ""
	}
	return mended
}

// fallbackOf returns an empty value of a type.
func fallbackOf(t *types.Type) (string, bool) {
	switch t.Kind() {
	case types.StringKind:
		return `""`, true
	case types.IntKind:
		return "0", true
	case types.DoubleKind:
		return "0.0", true
	case types.BoolKind:
		return "false", true
	case types.ListKind:
		return "[]", true
	case types.MapKind:
		return "{}", true
	}
	return "", false
}
