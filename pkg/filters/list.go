package filters

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/expr/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// list is the entries that want an op of a source.
type list struct {
	born    int   // of the entries, see Entry.Born
	members []int // all of them, in order
	asked   []int // those that no field tells anything about
	groups  []group
	seen    atomic.Uint64 // deltas
}

// group is the entries of a list that are looked up by one field. An entry is in one group of a
// list only.
type group struct {
	field   *equality.Field
	number  int
	byValue map[string][]int
	all     []int
}

// count is what became of the deltas that an entry might have wanted.
type count struct {
	mentioned atomic.Uint64 // in the result of Match
	taken     uint64        // by Skipped
	in        []*list
}

// Skipped returns how many deltas the equalities of an entry's filter have turned down in
// [Table.Match] since it was last called. Counting them one by one would mean to visit every route
// for every delta. It must not be called by several goroutines at once; a delta that is being
// matched meanwhile is in the next result.
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

// builder completes a table whose entries are in their lists.
type builder struct {
	table   *Table
	numbers map[string]int // of fields, by their IDs
	answers int
}

// newBuilder looks into the filters.
func newBuilder(t *Table) *builder {
	b := &builder{table: t, numbers: map[string]int{}}
	equal := map[expr.Identity]*rule{}
	t.rules = make([]rule, len(t.entries))
	for i := range t.entries {
		rule := &t.rules[i]
		rule.shared = -1
		if rule.cel, _ = t.entries[i].Filter.(*CEL); rule.cel == nil {
			continue
		}
		rule.numbers = b.fields(rule.cel)
		program := rule.cel.cfg.Program
		if len(program.Sources()) > 0 {
			continue // each has a cache of its own
		}
		first := equal[program.Identity()]
		if first == nil {
			equal[program.Identity()] = rule
			continue
		}
		if first.shared < 0 {
			first.shared = b.answers
			b.answers++
		}
		rule.shared = first.shared
	}
	t.scratch.New = func() any {
		return &readings{fields: make([]reading, len(b.numbers)), answers: make([]answered, b.answers)}
	}
	return b
}

// fields numbers the fields of a filter's equalities.
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

// finish decides how each list finds its entries.
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

// wish is that a field has a value.
type wish struct {
	number int
	value  string
}

// divide puts the members of a list into groups. What is the same for all deltas of the list is
// decided here: an entry that wants another op or source is in no group.
func (b *builder) divide(l *list, fixed *event.Delta) {
	var open []int
	wishes := map[wish]int{} // how many entries have it
	for _, i := range l.members {
		rule := &b.table.rules[i]
		if rule.cel == nil {
			open = append(open, i)
			continue
		}
		if rule.cel.excludes(fixed) {
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

// choose returns the equality that an entry is looked up by: the one whose values it shares with
// the fewest others; -1: it has none. Of two that are as good, one whose field every object has is
// better: a missing value means to look at the whole group.
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

// excludes reports whether the op or the source of a delta are not those that the filter wants.
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
