package filters

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/expr/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// list contains the entries that want one op of one source.
type list struct {
	born    int   // Entry.Born of all members
	members []int // all entries, in order
	asked   []int // the entries without an equality, evaluated for each delta
	groups  []group
	within  map[string][]int // the entries with a scope, by namespace; they are in no group
	seen    atomic.Uint64    // deltas
}

// group contains the entries of a list that are looked up by the same field. An entry is in at most
// one group of a list.
type group struct {
	field   *equality.Field
	number  int
	byValue map[string][]int
	all     []int
}

// count counts the deltas of the lists that contain an entry.
type count struct {
	mentioned atomic.Uint64 // verdicts that Match returned
	taken     uint64        // skipped deltas that Skipped has returned
	in        []*list
}

// Skipped returns the number of deltas that the equalities of an entry have excluded in
// [Table.Match] since the last call of Skipped. It is computed from totals, because to count each
// excluded delta would mean to visit every route for every delta. Skipped must not be called by
// several goroutines at once. It may count a delta that Match evaluates at this moment only in the
// next call.
func (t *Table) Skipped(entry int) uint64 {
	c := &t.counts[entry]
	seen := uint64(0)
	for _, l := range c.in {
		seen += l.seen.Load() // before mentioned, which Match adds to first
	}
	skipped := seen - min(seen, c.mentioned.Load())
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
		filter expr.Identity
	}
	equal := map[identity]*rule{}
	budgets := map[string]int{"": 0} // by the prefix of the scope
	t.rules = make([]rule, len(t.entries))
	for i := range t.entries {
		rule := &t.rules[i]
		rule.shared = -1
		if scope := t.entries[i].Scope; scope != nil {
			if _, ok := budgets[scope.Prefix]; !ok {
				budgets[scope.Prefix] = len(budgets)
			}
			rule.budget = budgets[scope.Prefix]
		}
		if rule.cel, _ = t.entries[i].Filter.(*CEL); rule.cel == nil {
			continue
		}
		rule.numbers = b.fields(rule.cel)
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
		return &readings{fields: make([]reading, len(b.numbers)), answers: make([]answered, b.answers), budgets: make([]expr.Budget, len(budgets))}
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

// finish divides each list into groups.
func (b *builder) finish() {
	for source, all := range b.table.bySource {
		for op := range all.live {
			for _, l := range slices.Concat(all.live[op], all.initial[op]) {
				b.divide(l, &event.Delta{Source: source, Op: event.Op(op)})
				for _, i := range l.members {
					b.table.counts[i].in = append(b.table.counts[i].in, l)
				}
			}
		}
	}
}

// wish is the equality of a field with one value.
type wish struct {
	number int
	value  string
}

// divide puts the members of a list into groups. fixed has the source and op of the list: entries
// whose equalities exclude these are in no group.
func (b *builder) divide(l *list, fixed *event.Delta) {
	var open []int
	wishes := map[wish]int{} // how many entries have it
	for _, i := range l.members {
		rule := &b.table.rules[i]
		if rule.cel != nil && rule.cel.excludes(fixed) {
			continue
		}
		if namespaces, all := b.table.entries[i].Scope.Only(); !all {
			l.addWithin(i, namespaces)
			continue
		}
		if rule.cel == nil {
			open = append(open, i)
			continue
		}
		open = append(open, i)
		for n := range rule.cel.equalities {
			for _, value := range rule.cel.equalities[n].Values {
				wishes[wish{rule.numbers[n], value}]++
			}
		}
	}
	groups := map[int]*group{}
	var order []int
	for _, i := range open {
		n := b.choose(i, wishes)
		if n < 0 {
			l.asked = append(l.asked, i)
			continue
		}
		rule := &b.table.rules[i]
		e, number := &rule.cel.equalities[n], rule.numbers[n]
		g := groups[number]
		if g == nil {
			g = &group{field: &e.Field, number: number, byValue: map[string][]int{}}
			groups[number], order = g, append(order, number)
		}
		g.all = append(g.all, i)
		for _, value := range e.Values {
			g.byValue[value] = append(g.byValue[value], i)
		}
	}
	for _, number := range order {
		l.groups = append(l.groups, *groups[number])
	}
}

// addWithin adds an entry that sees the objects of some namespaces.
func (l *list) addWithin(entry int, namespaces []string) {
	if l.within == nil {
		l.within = make(map[string][]int)
	}
	for _, namespace := range namespaces {
		if all := l.within[namespace]; len(all) == 0 || all[len(all)-1] != entry {
			l.within[namespace] = append(all, entry)
		}
	}
}

// choose returns the equality by which an entry is looked up: the one whose values the fewest other
// entries share. -1: there is none. Of two that are equal in this, it prefers a field that every
// object has, because a missing field requires a test of the whole group.
func (b *builder) choose(entry int, wishes map[wish]int) int {
	rule, best, fewest := &b.table.rules[entry], -1, math.MaxInt
	if rule.cel == nil {
		return -1
	}
	for n := range rule.cel.equalities {
		e, sharers := &rule.cel.equalities[n], 0
		if e.Field.Fixed() {
			continue
		}
		for _, value := range e.Values {
			sharers += wishes[wish{rule.numbers[n], value}]
		}
		if sharers < fewest || sharers == fewest && e.Field.Always() && !rule.cel.equalities[best].Field.Always() {
			best, fewest = n, sharers
		}
	}
	return best
}

// excludes reports whether the equalities of the filter exclude the op or the source of a delta.
func (f *CEL) excludes(d *event.Delta) bool {
	for i := range f.equalities {
		e := &f.equalities[i]
		if !e.Field.Fixed() {
			continue
		}
		if value, _ := e.Field.Read(d); !e.Holds(value) {
			return true
		}
	}
	return false
}
