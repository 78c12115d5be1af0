// Package filters decides which routes want a delta. A [Table] finds candidates by source, by op,
// and by the constants that their filters compare fields with. Then it asks the [Filter] of each
// candidate. It stands between a source and the queues of the routes (see internal/pipeline):
// deltas that match become pending.
package filters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/allowance"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Scope bounds the objects that a route sees.
type Scope = config.Scope

// Entry states which deltas a route wants.
type Entry struct {
	Sources []string
	// Scope: the route gets no verdict about other objects, and Filter is never evaluated for them.
	// nil: all objects.
	Scope    *Scope
	Ops      []event.Op
	Existing bool // also wants objects that existed before the router first saw them
	// Born is the number of reloads before the one that added the route; -1: it was there at the
	// start of the router. The route does not take Initial deltas of a watch that was added after
	// the route (see transit.State.Epoch).
	Born   int
	Filter Filter // nil: all deltas of these sources and ops match
	// Ready is closed when Filter may be evaluated, because the sources of its look-ups have
	// synced. nil: the filter may be evaluated at any time.
	Ready <-chan struct{}
	// Allowance limits the cost of the filters of all entries with the prefix of Scope. nil: it is
	// not limited.
	Allowance Allowance
	// Keyed: the caller evaluates keys of deltas that match, and charges these to Allowance, too.
	Keyed bool
}

// Allowance limits the CPU that the filters of some entries take, see [Entry]. A unit is the cost
// of a simple step of an expression, or the time that it takes. It is safe for concurrent use.
type Allowance interface {
	// Left returns the cost that filters may have now; 0 or less: none.
	Left() int
	// Charge subtracts the cost of evaluations.
	Charge(cost int)
	// Now returns the time, by which evaluations are measured.
	Now() time.Time
}

// Verdict is the result of a [Table] for one route and one delta.
type Verdict uint8

// The verdicts.
const (
	// Filtered entries are excluded by the filter of the route.
	Filtered Verdict = iota
	// Matched entries pass the filter of the route.
	Matched
	// Unready entries are not ready, and their equalities do not exclude them: the filter was not
	// evaluated.
	Unready
	// Failed entries made the filter fail; see Match.Err.
	Failed
	// Deferred entries have used up their Allowance, and their equalities do not exclude them: the
	// filter, or the key, was not evaluated.
	Deferred
)

// Match is the verdict about one entry.
type Match struct {
	Entry   int // the index of the entry in the argument of NewTable
	Verdict Verdict
	Err     error
}

// Table finds the routes that want a delta. It is safe for concurrent use. Only its counters
// change.
//
// It knows the equalities with constants of [CEL] filters. A route with equalities is in a hash
// table under the values of one of them: the one that the fewest other routes share. A delta with
// another value does not visit the route, nor does one without the field, unless it has to evaluate
// the filter. Equal filters are evaluated once per delta. A route with a scope of some namespaces
// is looked up by these first.
type Table struct {
	entries  []Entry
	rules    []rule // by entry
	bySource map[string]*lists
	scratch  sync.Pool // of *readings
	counts   []count   // by entry
}

// rule is the table's analysis of an entry. The fields that each verdict needs come first: with
// thousands of routes, they are not in the cache of the CPU.
type rule struct {
	cel       *CEL // nil: another type of filter
	ready     <-chan struct{}
	mentioned atomic.Uint64 // verdicts that Match returned
	shared    int           // index in readings.answers, shared by equal filters; -1: no equal one
	budget    int           // index in readings.budgets, shared by the entries of a scope's prefix
	allowance Allowance
	filtered  bool // the entry has a filter
	keyed     bool
	rest      bool  // the filter has conditions that are no equalities
	numbers   []int // of the fields of its equalities
}

// lists contains the entries of one source by op. initial has the entries that want Existing
// objects.
type lists struct {
	live, initial [event.Left + 1][]*list
}

// NewTable returns a table. A Match refers to an entry by its index in entries. Entries with
// Existing get a place in the lists of initial deltas, too: that is all the setting does here.
func NewTable(entries []Entry) *Table {
	t := &Table{entries: entries, bySource: map[string]*lists{}, counts: make([]count, len(entries))}
	b := newBuilder(t)
	for i, e := range entries {
		for _, source := range e.Sources {
			l := t.bySource[source]
			if l == nil {
				l = &lists{}
				t.bySource[source] = l
			}
			for _, op := range e.Ops {
				l.live[op] = add(l.live[op], i, always)
				if e.Existing {
					l.initial[op] = add(l.initial[op], i, e.Born)
				}
			}
		}
	}
	b.finish()
	return t
}

// always is the Born of a list of live deltas, where it has no effect.
const always = math.MaxInt

// add appends i to the list with the given born, unless i is its last member already: a source or
// an op may be named twice.
func add(all []*list, i, born int) []*list {
	at := slices.IndexFunc(all, func(l *list) bool { return l.born == born })
	if at < 0 {
		at = len(all)
		all = append(all, &list{born: born})
	}
	if l := all[at]; len(l.members) == 0 || l.members[len(l.members)-1] != i {
		l.members = append(l.members, i)
	}
	return all
}

// TakesInitial reports whether an entry may want Initial deltas of a source with an operation.
func (t *Table) TakesInitial(source string, op event.Op) bool {
	l := t.bySource[source]
	return l != nil && len(l.initial[op]) > 0
}

// Match appends to dst the verdicts about the routes that may want d, in the order of the entries.
// The caller may reuse dst for the next delta.
//
//   - A route without a verdict: its equalities, sources, ops or Initial exclude the delta; see
//     [Table.Skipped].
//   - Cost: a [Budget] limits all evaluations for one delta together. Evaluations beyond it
//     fail. The entries of each prefix of scopes have a budget of their own, so they cannot make
//     the filters of others fail. Entries with an Allowance get the verdict Deferred beyond it.
//   - Memory: Match itself allocates nothing while dst has capacity.
func (t *Table) Match(ctx context.Context, d *event.Delta, dst []Match) []Match {
	source := t.bySource[d.Source]
	if source == nil || int(d.Op) >= len(source.live) {
		return dst
	}
	wanted := source.live[d.Op]
	if d.Initial {
		wanted = source.initial[d.Op]
	}
	if len(wanted) == 0 {
		return dst
	}
	r, _ := t.scratch.Get().(*readings)
	r.delta = d
	first := len(dst)
	for _, l := range wanted {
		if d.Initial && l.born < transit.Of(d).Epoch {
			continue
		}
		dst = t.scan(ctx, l.open, r, dst)
		if len(l.within) > 0 {
			dst = t.scan(ctx, l.within[d.Object().Home()], r, dst)
		}
		l.seen.Add(1)
	}
	slices.SortFunc(dst[first:], func(a, b Match) int { return a.Entry - b.Entry })
	r.forget()
	t.scratch.Put(r)
	return dst
}

// evaluateEntry appends the verdict about one entry, unless its equalities exclude the delta. The
// object is in the scope of the entry.
func (t *Table) evaluateEntry(ctx context.Context, c candidate, r *readings, dst []Match) []Match {
	i := int(c.entry)
	m, rule := Match{Entry: i}, &t.rules[i]
	j := unknown
	switch {
	case c.holds && !rule.rest:
		j = yes
	case !c.holds && rule.cel != nil:
		j = rule.cel.testEqualities(r, rule.numbers)
	}
	switch {
	case j == no:
		return dst
	case !ready(rule.ready):
		m.Verdict = Unready
	case rule.allowance != nil && rule.defers(j, r):
		m.Verdict = Deferred
	case j == yes:
		m.Verdict = Matched
	case rule.cel != nil:
		m = t.ask(i, func() (bool, error) { return rule.cel.absentIsFalse(r.delta, t.answer(ctx, rule, r)) })
	default:
		m = t.Evaluate(ctx, i, r.delta)
	}
	rule.mentioned.Add(1)
	return append(dst, m)
}

// answer evaluates a filter, or returns the answer of an equal filter.
func (t *Table) answer(ctx context.Context, rule *rule, r *readings) answer {
	if rule.shared < 0 {
		return rule.evaluate(ctx, r)
	}
	at := &r.answers[rule.shared]
	if !at.done {
		at.answer = rule.evaluate(ctx, r)
		at.done = true
		r.asked = append(r.asked, rule.shared)
	}
	return at.answer
}

// evaluate evaluates the filter of a rule within its budget.
func (r *rule) evaluate(ctx context.Context, on *readings) answer {
	b := on.touch(r.budget)
	if r.allowance == nil {
		return r.cel.evaluate(ctx, on.delta, &b.Budget)
	}
	began := r.allowance.Now()
	a := r.cel.evaluate(ctx, on.delta, &b.Budget)
	b.took += r.allowance.Now().Sub(began)
	return a
}

// defers reports whether the allowance has nothing left for the evaluation that a delta needs.
func (r *rule) defers(j judgement, on *readings) bool {
	needs := r.keyed || j != yes && r.filtered && (r.shared < 0 || !on.answers[r.shared].done)
	return needs && on.spent(r.budget, r.allowance)
}

// Sees reports whether the object of a delta is in the scope of an entry.
func (t *Table) Sees(entry int, d *event.Delta) bool {
	scope := t.entries[entry].Scope
	return scope == nil || scope.Sees(d.Object().Home())
}

// Ready reports whether the filter of an entry may be evaluated.
func (t *Table) Ready(entry int) bool { return ready(t.entries[entry].Ready) }

// Evaluate evaluates the filter of one entry, ready or not, and regardless of its Allowance. The
// router calls it for deltas with an earlier verdict Unready or Deferred. An object that the entry
// does not see is Filtered. A panic of the filter is a failure: the content of an object must not
// end the process.
func (t *Table) Evaluate(ctx context.Context, entry int, d *event.Delta) Match {
	f := t.entries[entry].Filter
	if !t.Sees(entry, d) {
		return Match{Entry: entry}
	}
	if f == nil {
		return Match{Entry: entry, Verdict: Matched}
	}
	return t.ask(entry, func() (bool, error) { return f.Match(ctx, d) })
}

// ask turns the result of a filter into a verdict.
func (t *Table) ask(entry int, match func() (bool, error)) (m Match) {
	m.Entry = entry
	defer func() {
		if p := recover(); p != nil {
			// the text of the panic may quote the object
			m.Verdict, m.Err = Failed, fmt.Errorf("filter panicked with a %T", p)
		}
	}()
	switch ok, err := match(); {
	case err != nil:
		m.Verdict, m.Err = Failed, err
	case ok:
		m.Verdict = Matched
	}
	return m
}

func ready(c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Budget bounds the cost of all questions about one delta, see [Table.Enters]. The zero Budget is
// full.
type Budget struct{ cel cel.Budget }

// Enters reports whether the route of an entry would want the delete of the object in its new
// state, but not in its old state. After a crash the filter is evaluated with the state on disk, so
// the difference matters.
//
//   - The cost of an evaluation exceeds the budget: Enters returns true. All questions about one
//     delta share the budget.
//   - Enters counts and logs nothing, because it evaluates no delta that a route gets.
func (t *Table) Enters(ctx context.Context, entry int, d *event.Delta, budget *Budget) bool {
	e := &t.entries[entry]
	if d.Op != event.Updated || d.Old == nil || e.Filter == nil || !slices.Contains(e.Ops, event.Deleted) {
		return false
	}
	if owner := t.rules[entry].allowance; owner != nil {
		spent, began := budget.cel.Spent(), owner.Now()
		defer func() { owner.Charge(allowance.Price(budget.cel.Spent()-spent, owner.Now().Sub(began))) }()
	}
	wants := func(last *event.Object) (wants, known bool) {
		gone := &event.Delta{Source: d.Source, Op: event.Deleted, Old: last, Seen: d.Seen}
		m := t.ask(entry, func() (bool, error) { return t.rules[entry].match(ctx, e.Filter, gone, &budget.cel) })
		return m.Verdict == Matched, m.Verdict != Failed
	}
	if did, known := wants(d.Old); did && known {
		return false // the usual case: one evaluation
	}
	now, known := wants(d.New)
	return now || !known
}

// match evaluates a filter without counting missing fields.
func (r *rule) match(ctx context.Context, f Filter, d *event.Delta, budget *cel.Budget) (bool, error) {
	if r.cel == nil {
		return f.Match(ctx, d)
	}
	a := r.cel.evaluate(ctx, d, budget)
	if errors.Is(a.err, cel.ErrAbsent) {
		return false, nil
	}
	return a.ok, a.err
}
