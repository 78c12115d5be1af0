package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Warning concerns an expression that is allowed, but may not be intended.
type Warning struct {
	celerr.Issue

	Define string // the define with the text; empty: the expression's own text
	// Excessive: the possible cost is so high that the expression should be refused, unless its
	// author confirms it.
	Excessive bool
}

// Warnings returns the warnings about one text, which was compiled for a usage in a scope.
func Warnings(s *Scope, usage Usage, u syntax.Unit) []Warning {
	o := optionals{scope: s, usage: usage, unit: u, guards: make(map[string]bool)}
	o.find()
	o.literals()
	o.compared()
	return o.warnings
}

// optionals checks one text.
type optionals struct {
	scope  *Scope
	usage  Usage
	unit   syntax.Unit
	guards map[string]bool // paths whose presence the text checks
	inner  map[int64]bool  // parts of a longer chain
	// converted are the arguments of conversions that fail for an empty text, each with its call.
	converted map[int64]ast.Expr
	warnings  []Warning
}

// warnAt adds a warning about an expression.
func (o *optionals) warnAt(e ast.Expr, message string) {
	w := Warning{Define: o.unit.Define}
	w.Line, w.Column = o.unit.Start(e)
	w.Message = message
	o.warnings = append(o.warnings, w)
}

var (
	quantityText = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)$`)
	template     = regexp.MustCompile(`\{\{.*\}\}|\$\{[^}]*\}`)
)

// literals warns of misused literal texts: they are no templates, and they are not compared like
// quantities.
func (o *optionals) literals() {
	syntax.Walk(o.unit.AST.NativeRep().Expr(), nil, func(e ast.Expr, _ []string) {
		if text, ok := syntax.Literal(e); ok && o.usage == Emit {
			if found := template.FindString(text); found != "" {
				o.warnAt(e, fmt.Sprintf("%s is not replaced, because CEL has no templates; join texts with +, as in \"pod \" + object.metadata.name", found))
			}
		}
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 || !slices.Contains([]string{
			operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		}, e.AsCall().FunctionName()) {
			return
		}
		for i, side := range e.AsCall().Args() {
			text, ok := syntax.Literal(side)
			if _, both := syntax.Literal(e.AsCall().Args()[1-i]); ok && !both && quantityText.MatchString(text) {
				o.warnAt(side, fmt.Sprintf("texts are compared letter by letter, so that \"9Mi\" is more than \"1Gi\"; compare quantities: quantity(x).compareTo(quantity(%q)) > 0", text))
			}
		}
	})
}

// compared warns of comparisons of a whole object, or its metadata, with its old state: both always
// differ.
func (o *optionals) compared() {
	syntax.Walk(o.unit.AST.NativeRep().Expr(), nil, func(e ast.Expr, local []string) {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
			return
		}
		result := "true"
		switch e.AsCall().FunctionName() {
		case operators.NotEquals:
		case operators.Equals:
			result = "false"
		default:
			return
		}
		for _, part := range []string{"", ".metadata"} {
			a, b := syntax.PathOf(e.AsCall().Args()[0]), syntax.PathOf(e.AsCall().Args()[1])
			if slices.Contains(local, syntax.VarObject) || slices.Contains(local, syntax.VarOldObject) ||
				min(a, b) != syntax.VarObject+part || max(a, b) != syntax.VarOldObject+part {
				continue
			}
			o.warnAt(e.AsCall().Args()[0], fmt.Sprintf("this is always %s for an update, because metadata.resourceVersion differs; compare what matters, as in changed(\"spec\")", result))
		}
	})
}

// mostWritten is the number of characters of an expression that a message shows.
const mostWritten = 80

// written returns the text of an expression with fewer spaces.
func (o *optionals) written(e ast.Expr) string {
	if path := syntax.PathOf(e); !strings.Contains(path, "#") {
		return path
	}
	dot, known := o.unit.AST.NativeRep().SourceInfo().GetOffsetRange(e.ID())
	text := []rune(o.unit.Text())
	if !known || int(dot.Start) >= len(text) || text[dot.Start] != '.' {
		return "." + e.AsSelect().FieldName()
	}
	runes := []rune(syntax.OneLine(string(text[syntax.StartOfChain(syntax.Bare(text), int(dot.Start)):syntax.EndOfStep(text, int(dot.Start))])))
	if len(runes) > mostWritten {
		return "…" + string(runes[len(runes)-mostWritten:])
	}
	return string(runes)
}
