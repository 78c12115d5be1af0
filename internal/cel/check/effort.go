package check

import (
	"fmt"

	"github.com/google/cel-go/cel"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
)

// Effort bounds the work of compiling several texts, as those of the routes of a team: each is
// within the bounds, but a thousand of them would still take minutes. The work is estimated, not
// timed, so that the same texts are accepted on every machine: a text counts with the square of its
// nodes. nil has no bound. It is not safe for concurrent use.
type Effort struct{ most, spent int }

// The bounds of an Effort. A second compiles 30 to 50 million.
const (
	// EffortOfOwner is that of all routes of a team: 20,000 expressions of the usual size, or 12 of
	// MaxNodes.
	EffortOfOwner = 200_000_000
	// EffortOfQuery is that of a filter of a user of the API: about 1000 nodes.
	EffortOfQuery = 1_000_000
)

// effortOfText is the work for a text besides that for its nodes.
const effortOfText = 8_000

// NewEffort returns an effort with a bound.
func NewEffort(most int) *Effort { return &Effort{most: most} }

// Spend adds work, and reports whether the sum is within the bound.
func (e *Effort) Spend(work int) bool {
	if e == nil {
		return true
	}
	e.spent = min(e.spent+work, e.most+1)
	return e.spent <= e.most
}

// Spent returns the sum of the work; nil has none.
func (e *Effort) Spent() int {
	if e == nil {
		return 0
	}
	return e.spent
}

// spendOn adds the work of a parsed text. If there is an error, the text must not be checked.
func (e *Effort) spendOn(define string, parsed *cel.Ast) *celerr.CompileError {
	nodes := Nodes(parsed)
	if e.Spend(effortOfText + nodes*nodes) {
		return nil
	}
	return boundError(define, parsed, parsed.NativeRep().Expr(), e.exhausted(nodes))
}

func (e *Effort) exhausted(nodes int) string {
	return fmt.Sprintf("would take too long to compile together with the expressions before it: each counts with the square of its parts "+
		"(operators, calls, fields and values; here %d), and the sum is %d at most: shorten long expressions, or write fewer", nodes, e.most)
}

// Exhausted returns the error of a text that is not compiled, because Spend refused its work.
func (e *Effort) Exhausted() *celerr.CompileError {
	return &celerr.CompileError{Issues: []celerr.Issue{{Line: 1, Message: e.exhausted(0)}}}
}
