package readset

import (
	"maps"

	"github.com/google/cel-go/common/ast"
)

// rounds is the number of evaluations of a loop after which its result is read as a whole.
const rounds = 4

// loop returns the origins of the result of a macro.
func (r *reader) loop(l ast.ComprehensionExpr, vars map[string]value) value {
	over := r.value(l.IterRange(), vars)
	inside := make(map[string]value, len(vars)+3)
	maps.Copy(inside, vars)
	inside[l.AccuVar()] = r.value(l.AccuInit(), vars)
	if l.IterRange().Kind() == ast.ListKind && l.IterRange().AsList().Size() == 0 { // cel.bind
		r.use(r.value(l.LoopCondition(), inside))
		return r.value(l.Result(), inside)
	}
	elements := maps.Clone(inside)
	if r.isList(l.IterRange()) {
		r.touch(over)
	} else { // the keys and values of a map
		r.use(over)
		over = nil
	}
	if l.HasIterVar2() { // the index, and the element
		elements[l.IterVar()], elements[l.IterVar2()] = nil, over
	} else {
		elements[l.IterVar()] = over
	}
	return r.value(l.Result(), r.repeat(l, elements, inside))
}

// repeat evaluates the step of a loop until its result has no new origins. It returns the variables
// with those of the result.
func (r *reader) repeat(l ast.ComprehensionExpr, elements, inside map[string]value) map[string]value {
	for range rounds {
		before := elements[l.AccuVar()]
		r.use(r.value(l.LoopCondition(), elements))
		after := before.or(r.value(l.LoopStep(), elements))
		elements[l.AccuVar()], inside[l.AccuVar()] = after, after
		if len(after) == len(before) {
			return inside
		}
	}
	r.use(inside[l.AccuVar()])
	inside[l.AccuVar()] = nil
	return inside
}
