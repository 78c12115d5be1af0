package cost

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Message describes the possible cost, its reason, and the remedy.
func (e *Estimate) Message() string {
	return fmt.Sprintf("this may cost about %s for large objects, and an evaluation is stopped at %s%s",
		grouped(rounded(e.most)), grouped(e.limit), explained(e.loops))
}

// rounded leaves two digits of a number, because the estimate is no more precise.
func rounded(n uint64) uint64 {
	unit := uint64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return n / unit * unit
}

// explained describes the reason and the remedy.
func explained(loops []loop) string {
	if len(loops) == 0 {
		return ""
	}
	parts := make([]string, len(loops))
	for i, l := range loops {
		parts[i] = fmt.Sprintf("%s elements of %s", grouped(l.n), described(l.expr))
	}
	text := ": it loops over " + strings.Join(parts, " times ")
	if len(loops) > 1 {
		text += "; find related objects with an index and lookup() instead"
	} else {
		text += "; use shorter lists, or do less for each element"
	}
	unbounded := func(l loop) bool {
		return l.expr.Kind() == ast.CallKind && l.expr.AsCall().FunctionName() == syntax.Prefix+syntax.FuncLookup
	}
	if slices.ContainsFunc(loops, unbounded) {
		text += ", and limit the number of results, as in lookup(index, value, 20)"
	}
	return text + "; if the lists are never that long, confirm it: # check: ok"
}

// described returns the name of an expression for a message.
func described(e ast.Expr) string {
	switch {
	case e.Kind() == ast.CallKind && !strings.HasPrefix(e.AsCall().FunctionName(), "_"):
		return syntax.NameOf(e.AsCall().FunctionName()) + "()"
	case strings.Contains(syntax.PathOf(e), "#"):
		return "what was computed"
	}
	return syntax.PathOf(e)
}

// grouped writes a number with commas; very large numbers are only called very large.
func grouped(n uint64) string {
	if n > 1_000_000_000_000_000 {
		return "more than 1,000,000,000,000,000"
	}
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
