package filters

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/cel/equality"
)

const (
	// few is the number of entries up to which a branch is not divided. To test each of them is as
	// fast as a look-up.
	few = 4
	// copies is the number of branches that an entry may be in below its first look-up.
	copies = 32
)

// branch contains entries that the fields read so far do not exclude. An entry is in one of its
// three parts, and in one group at most. Most branches have one candidate, and fill a cache line.
type branch struct {
	candidates []candidate // considered one by one
	absent     *absence
	groups     []group
	first      [1]candidate // the memory of a single candidate
}

// candidate is an entry of a branch.
type candidate struct {
	entry uint32
	holds bool // all its equalities hold
}

// group contains the entries of a branch that are looked up by the same field.
type group struct {
	field   *equality.Field
	number  int
	byValue map[string]*branch
	missing *branch // nil: every object has the field
	all     []candidate
}

// absence contains the entries of a branch that do not match because a field is missing. The
// objects that reach the branch are counted once for all of them, see [Table.Skipped].
type absence struct {
	members []candidate
	logged  atomic.Bool // each member has logged its first missing field
	deltas  atomic.Uint64
}

// scan appends the verdicts about the entries of a branch.
func (t *Table) scan(ctx context.Context, at *branch, r *readings, dst []Match) []Match {
	if at == nil {
		return dst
	}
	dst = t.evaluateEntries(ctx, at.candidates, r, dst)
	switch {
	case at.absent == nil:
	case at.absent.logged.Load():
		at.absent.deltas.Add(1)
	default:
		dst = t.evaluateEntries(ctx, at.absent.members, r, dst)
		at.absent.logged.Store(true)
	}
	for i := range at.groups {
		g := &at.groups[i]
		switch value, state := r.of(g.field, g.number); {
		case state == equality.Known:
			dst = t.scan(ctx, g.byValue[value], r, dst)
		case state == equality.Missing && g.missing != nil:
			dst = t.scan(ctx, g.missing, r, dst)
		default:
			dst = t.evaluateEntries(ctx, g.all, r, dst)
		}
	}
	return dst
}

func (t *Table) evaluateEntries(ctx context.Context, all []candidate, r *readings, dst []Match) []Match {
	for _, c := range all {
		dst = t.evaluateEntry(ctx, c, r, dst)
	}
	return dst
}

// member is an entry on its way into the branches.
type member struct {
	entry int
	// decided has the equalities whose fields are read on the way to the branch, as bits: they
	// hold, or the field is missing.
	decided uint64
	missing int // the first equality whose field is missing, or none
	copies  int // the number of branches that the entry may be in from here on
}

// none is member.missing without a missing field.
const none = math.MaxInt

// branch divides entries.
func (b *builder) branch(members []member) *branch {
	at := &branch{}
	at.candidates = at.first[:0]
	if len(members) <= few {
		for i := range members {
			b.end(at, &members[i])
		}
		return at
	}
	counts := b.candidateKeys(members)
	parts := map[int][]member{} // by the numbers of their fields
	var order []int
	for i := range members {
		m := &members[i]
		n := b.choose(m, counts)
		if n < 0 {
			b.end(at, m)
			continue
		}
		number := b.table.rules[m.entry].numbers[n]
		if parts[number] == nil {
			order = append(order, number)
		}
		parts[number] = append(parts[number], *m)
	}
	for _, number := range order {
		at.groups = append(at.groups, b.group(number, parts[number]))
	}
	return at
}

// end puts an entry that no further field divides into a branch. If the fields of all its
// equalities are read and one is missing, the result is that of [CEL.judge].
func (b *builder) end(at *branch, m *member) {
	rule := &b.table.rules[m.entry]
	decided := rule.cel != nil && bits.OnesCount64(m.decided) == len(rule.cel.equalities)
	c := candidate{uint32(m.entry), decided && m.missing == none}
	if !decided || m.missing == none || !rule.cel.equalities[m.missing].Leading {
		at.candidates = append(at.candidates, c)
		return
	}
	if at.absent == nil {
		at.absent = &absence{}
	}
	at.absent.members = append(at.absent.members, c)
	b.table.counts[m.entry].absent = append(b.table.counts[m.entry].absent, at.absent)
}

// group divides entries by the field with a number.
func (b *builder) group(number int, members []member) group {
	g := group{number: number, byValue: map[string]*branch{}}
	byValue := map[string][]member{}
	var missing []member
	for i := range members {
		m := members[i]
		rule := &b.table.rules[m.entry]
		g.all = append(g.all, candidate{entry: uint32(m.entry)})
		n := slices.Index(rule.numbers, number)
		m.decided |= rule.about(number)
		g.field = &rule.cel.equalities[n].Field
		values := rule.cel.equalities[n].Values
		without := m
		without.missing, without.copies = min(m.missing, n), m.copies/2
		missing = append(missing, without)
		m.copies /= 2 * len(values)
		for _, value := range values {
			if rule.permits(number, value) {
				byValue[value] = append(byValue[value], m)
			}
		}
	}
	for value, members := range byValue {
		g.byValue[value] = b.branch(members)
	}
	if !g.field.Always() {
		g.missing = b.branch(missing)
	}
	return g
}

// about returns the equalities of a rule about the field with a number, as bits.
func (r *rule) about(number int) (equalities uint64) {
	for i, n := range r.numbers {
		if n == number {
			equalities |= 1 << i
		}
	}
	return equalities
}

// permits reports whether all equalities about the field with a number hold for a value.
func (r *rule) permits(number int, value string) bool {
	for i, n := range r.numbers {
		if n == number && !r.cel.equalities[i].Holds(value) {
			return false
		}
	}
	return true
}

// candidateKey is the equality of a field with one value.
type candidateKey struct {
	number int
	value  string
}

// candidateKeys returns the number of entries with each undecided equality.
func (b *builder) candidateKeys(members []member) map[candidateKey]int {
	counts := map[candidateKey]int{}
	for i := range members {
		rule := &b.table.rules[members[i].entry]
		if rule.cel == nil {
			continue
		}
		for n := range rule.cel.equalities {
			for _, value := range rule.cel.equalities[n].Values {
				counts[candidateKey{rule.numbers[n], value}]++
			}
		}
	}
	return counts
}

// choose returns the equality by which an entry is looked up: the one whose values the fewest other
// entries share. -1: there is none. Of two that are equal in this, it prefers a field that every
// object has: it is in no branch of missing fields.
func (b *builder) choose(m *member, counts map[candidateKey]int) int {
	rule, best, fewest := &b.table.rules[m.entry], -1, math.MaxInt
	if rule.cel == nil {
		return -1
	}
	for n := range min(len(rule.cel.equalities), 64) {
		e, sharers := &rule.cel.equalities[n], 0
		if m.decided>>n&1 == 1 || m.copies < copies && 2*len(e.Values) > m.copies {
			continue
		}
		for _, value := range e.Values {
			sharers += counts[candidateKey{rule.numbers[n], value}]
		}
		if sharers < fewest || sharers == fewest && e.Field.Always() && !rule.cel.equalities[best].Field.Always() {
			best, fewest = n, sharers
		}
	}
	return best
}
