package filters

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// list contains the entries that want one op of one source. Lists of the same entries share their
// branches.
type list struct {
	born    int                // Entry.Born of all members
	members []int              // all entries, in order
	open    *branch            // the entries without a scope
	within  map[string]*branch // the entries with a scope, by namespace
	seen    atomic.Uint64      // deltas
}

// count counts the deltas of the lists that contain an entry.
type count struct {
	taken    uint64 // skipped deltas that Skipped has returned
	in       []*list
	absent   []*absence // that contain the entry
	reported uint64     // deltas of these that were reported to CELConfig.Absent
}

// Skipped returns the number of deltas that the equalities of an entry have excluded in
// [Table.Match] since the last call of Skipped. It also reports those that lack a field to
// [CELConfig.Absent], unless Match has done so. Both numbers are computed from totals, because to
// count each excluded delta would mean to visit every route for every delta. Skipped must not be
// called by several goroutines at once. It may count a delta that Match evaluates at this moment
// only in the next call.
func (t *Table) Skipped(entry int) uint64 {
	c := &t.counts[entry]
	lacking := uint64(0)
	for _, a := range c.absent {
		lacking += a.deltas.Load()
	}
	if n := lacking - c.reported; n > 0 {
		c.reported = lacking
		t.rules[entry].cel.count(n)
	}
	seen := uint64(0)
	for _, l := range c.in {
		seen += l.seen.Load() // before mentioned, which Match adds to first
	}
	skipped := seen - min(seen, t.rules[entry].mentioned.Load())
	n := skipped - min(skipped, c.taken)
	c.taken += n
	return n
}

// builder completes a table whose entries have been added to their lists.
type builder struct {
	table   *Table
	numbers map[string]int // of fields, by their IDs
	answers int
}

// newBuilder collects the fields of all filters, and finds the filters that are equal.
func newBuilder(t *Table) *builder {
	b := &builder{table: t, numbers: map[string]int{}}
	// The answer is shared within a budget only: it may be that the budget is used up.
	type identity struct {
		budget int
		filter cel.Identity
	}
	equal := map[identity]*rule{}
	budgets := map[string]int{"": 0} // by the prefix of the scope
	t.rules = make([]rule, len(t.entries))
	for i := range t.entries {
		rule := &t.rules[i]
		rule.shared, rule.ready = -1, t.entries[i].Ready
		rule.allowance, rule.filtered, rule.keyed = t.entries[i].Allowance, t.entries[i].Filter != nil, t.entries[i].Keyed
		if scope := t.entries[i].Scope; scope != nil {
			if _, ok := budgets[scope.Prefix]; !ok {
				budgets[scope.Prefix] = len(budgets)
			}
			rule.budget = budgets[scope.Prefix]
		}
		if rule.cel, _ = t.entries[i].Filter.(*CEL); rule.cel == nil {
			continue
		}
		rule.numbers, rule.rest = b.fields(rule.cel), rule.cel.rest
		program := rule.cel.cfg.Program
		if len(program.Sources()) > 0 {
			continue // each has a cache of its own
		}
		same := identity{rule.budget, program.Identity()}
		first := equal[same]
		if first == nil {
			equal[same] = rule
			continue
		}
		if first.shared < 0 {
			first.shared = b.answers
			b.answers++
		}
		rule.shared = first.shared
	}
	t.scratch.New = func() any {
		return &readings{fields: make([]reading, len(b.numbers)), answers: make([]answered, b.answers), budgets: make([]budget, len(budgets))}
	}
	return b
}

// fields returns the numbers of the fields in the equalities of a filter.
func (b *builder) fields(f *CEL) []int {
	numbers := make([]int, len(f.equalities))
	for i := range f.equalities {
		id := f.equalities[i].Field.ID
		n, ok := b.numbers[id]
		if !ok {
			n = len(b.numbers)
			b.numbers[id] = n
		}
		numbers[i] = n
	}
	return numbers
}

// finish divides the entries of each list.
func (b *builder) finish() {
	for source, all := range b.table.bySource {
		var before []*division
		for op := range all.live {
			for _, l := range slices.Concat(all.live[op], all.initial[op]) {
				before = b.divide(l, &event.Delta{Source: source, Op: event.Op(op)}, before)
				for _, i := range l.members {
					b.table.counts[i].in = append(b.table.counts[i].in, l)
				}
			}
		}
	}
}

// division is the entries of a list before and after they are divided.
type division struct {
	open   []member
	within map[string][]member // by namespace
	list   *list
}

// divide puts the members of a list into branches. fixed has the source and op of the list: entries
// whose equalities exclude these are in no branch. before has the lists of the same source that are
// divided already.
func (b *builder) divide(l *list, fixed *event.Delta, before []*division) []*division {
	d := &division{within: map[string][]member{}, list: l}
	for _, i := range l.members {
		m := member{entry: i, missing: none, copies: copies}
		if cel := b.table.rules[i].cel; cel != nil {
			var excluded bool
			if m.decided, excluded = cel.fixed(fixed); excluded {
				continue
			}
		}
		namespaces, all := b.table.entries[i].Scope.Only()
		if all {
			d.open = append(d.open, m)
			continue
		}
		for _, namespace := range namespaces {
			if in := d.within[namespace]; namespace != "" && (len(in) == 0 || in[len(in)-1].entry != i) {
				d.within[namespace] = append(in, m)
			}
		}
	}
	for _, other := range before {
		if d.equal(other) {
			l.open, l.within = other.list.open, other.list.within
			return before
		}
	}
	l.open, l.within = b.branch(d.open), make(map[string]*branch, len(d.within))
	for namespace, members := range d.within {
		l.within[namespace] = b.branch(members)
	}
	return append(before, d)
}

// equal reports whether two lists have the same branches.
func (d *division) equal(other *division) bool {
	return slices.Equal(d.open, other.open) && maps.EqualFunc(d.within, other.within, slices.Equal[[]member])
}

// fixed returns the equalities of the filter about the op and the source, as bits, and whether they
// exclude those of a delta.
func (f *CEL) fixed(d *event.Delta) (decided uint64, excluded bool) {
	for i := range f.equalities {
		e := &f.equalities[i]
		if !e.Field.Fixed() {
			continue
		}
		if value, _ := e.Field.Read(d); !e.Holds(value) {
			return 0, true
		}
		decided |= 1 << i
	}
	return decided, false
}
