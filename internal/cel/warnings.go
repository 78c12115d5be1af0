package cel

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel/check"
)

// Warning concerns an expression that is allowed, but may not be intended.
type Warning = check.Warning

// Outline is the literal part of a value that an expression makes.
type Outline = check.Outline

// OutlineAt is a place in the text of an expression or a define.
type OutlineAt = check.OutlineAt

// Warnings concern a possible cost beyond the limit of an evaluation, and fields that an object may
// lack and that the expression uses without has(), .? or in. Each suggests a replacement that
// compiles. Warnings about fields need a schema, and indexes have none: an object without the field
// is not in the index, as intended.
func (p *Program) Warnings() (warnings []check.Warning) {
	programs := []*Program{p}
	for _, other := range p.others {
		programs = append(programs, other)
	}
	add := func(w check.Warning) {
		if !slices.Contains(warnings, w) {
			warnings = append(warnings, w)
		}
	}
	for _, w := range p.CostWarnings() {
		add(w)
	}
	for _, program := range programs {
		if p.usage == check.Index {
			break
		}
		for _, u := range program.linked.Texts.Units {
			for _, w := range check.Warnings(program.scope, p.usage, u) {
				add(w)
			}
		}
	}
	slices.SortFunc(warnings, func(a, b check.Warning) int {
		return cmp.Or(strings.Compare(a.Define, b.Define), a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Message, b.Message))
	})
	return warnings
}

// CostWarnings returns the warnings of [Program.Warnings] about the cost. They are computed
// already.
func (p *Program) CostWarnings() (warnings []check.Warning) {
	programs := []*Program{p}
	for _, source := range slices.Sorted(maps.Keys(p.others)) {
		programs = append(programs, p.others[source])
	}
	for _, program := range programs {
		if w := program.costly; w != nil && !slices.Contains(warnings, *w) {
			warnings = append(warnings, *w)
		}
	}
	return warnings
}

// Outlines returns the data of each event that an [Emit] may make, as far as it is a literal map in
// the text of the expression or of a define. all: it makes no other events.
func (p *Program) Outlines() (found []Outline, all bool) { return check.Outlines(p.linked.Texts.Units) }

// EventReads returns the reads of the event of an upstream route that fail if it does not have the
// member, by the source of the text; empty: the text is that of all sources. Those in defines are
// missing: other routes with other events use them, too.
func EventReads(p *Program) map[string][]EventRead {
	if !p.mixed {
		return map[string][]EventRead{"": check.EventReads(p.linked.Texts.Main())}
	}
	reads := make(map[string][]EventRead)
	for source, of := range p.others {
		reads[source] = check.EventReads(of.linked.Texts.Main())
	}
	return reads
}

// GroupSize is a comparison of the number of the objects of a group with a number.
type GroupSize = check.GroupSize

// GroupSizes returns the comparisons of the size of a group in the own text of an expression, and
// whether it counts the objects of a group at all.
func GroupSizes(p *Program) (compared []GroupSize, counts bool) {
	for _, u := range p.linked.Texts.Units {
		counts = counts || check.CountsGroup(u)
		if u.Define == "" {
			compared = append(compared, check.GroupSizes(u)...)
		}
	}
	return compared, counts
}
