package syntax

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// offsetStep separates the source offsets of the linked units: those of unit n start at
// n*offsetStep. cel-go refuses expressions of more than 100,000 code points.
const offsetStep = 1 << 20

// Texts are the texts that one tree consists of.
type Texts struct {
	Units  []Unit // the defines in the order of their dependencies, and the expression proper last
	Info   *ast.SourceInfo
	Linked bool // the tree consists of several texts, or was changed
}

// Main returns the expression proper.
func (t *Texts) Main() Unit { return t.Units[len(t.Units)-1] }

// Content returns the text of a define, or of the expression itself.
func (t *Texts) Content(define string) string {
	for _, u := range t.Units {
		if u.Define == define {
			return u.Text()
		}
	}
	return ""
}

// Text returns the text as written by its author.
func (u Unit) Text() string { return u.AST.Source().Content() }

// Start returns the start of an expression in the text: the line from 1, the column from 0.
func (u Unit) Start(e ast.Expr) (line, column int) {
	place := u.AST.NativeRep().SourceInfo().GetStartLocation(e.ID())
	return max(1, place.Line()), max(0, place.Column())
}

// Place returns the text of a node of the linked tree and its place in it. Line 0: unknown.
func (t *Texts) Place(id int64) (define string, line, column int) {
	u, offset, ok := t.Origin(id)
	if !ok {
		return "", 0, 0
	}
	location := u.AST.NativeRep().SourceInfo().GetLocationByOffset(offset)
	return u.Define, location.Line(), location.Column()
}

// Origin returns the text of a node of the linked tree, and its offset there.
func (t *Texts) Origin(id int64) (u Unit, offset int32, ok bool) {
	place, ok := t.Info.GetOffsetRange(id)
	if !ok {
		return Unit{}, 0, false
	}
	if !t.Linked {
		return t.Main(), place.Start, true
	}
	n := int(place.Start) / offsetStep
	if n >= len(t.Units) {
		return Unit{}, 0, false
	}
	return t.Units[n], place.Start % offsetStep, true
}

// Shift moves the offsets of a unit to those of unit n, and removes the text of macros, which
// serves printing only.
func Shift(info *ast.SourceInfo, n int32) {
	for id, offset := range info.OffsetRanges() {
		info.SetOffsetRange(id, ast.OffsetRange{Start: offset.Start + n*offsetStep, Stop: offset.Stop + n*offsetStep})
	}
	for id := range info.MacroCalls() {
		info.ClearMacroCall(id)
	}
}

// Unit is one text that was compiled by itself: a define or the expression proper.
type Unit struct {
	Define string // empty: the expression proper
	AST    *cel.Ast
	Uses   []string // the defines that it uses directly, sorted
}
