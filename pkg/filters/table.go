// Package filters decides which routes want a delta. A [Table] finds the candidates by source and
// op and by what their filters compare with constants, and then asks the [Filter] of each. It
// stands between a source and the delta queues of the routes (see internal/pipeline): what it lets
// through is pending.
package filters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/expr/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Entry is what a route wants.
type Entry struct {
	Sources []string
	Ops     []event.Op
	Initial bool // also objects that were there before the router first looked
	// Born is how often the configuration had been reloaded when the route appeared; -1: it was
	// there before the router started. Of a watch that was added later (see transit.State.Epoch) it
	// does not take what is Initial.
	Born   int
	Filter Filter // nil: everything of these sources and ops
	// Ready is closed once Filter may be asked: it looks things up, and what it looks up must be
	// there first. nil: at any time.
	Ready <-chan struct{}
}

// Verdict is what a [Table] found out about one route and one delta.
type Verdict uint8

// The verdicts.
const (
	Filtered Verdict = iota // the route's filter does not want it
	Matched                 // the route wants it
	// the filter was not asked, because the entry is not ready; its equalities have not said no
	Unready
	Failed // the filter failed, see Match.Err
)

// Match is the verdict about one entry.
type Match struct {
	Entry   int // its place in the entries that the table was made of
	Verdict Verdict
	Err     error
}

// Table finds the routes that want a delta. It is safe for concurrent use; only its counters
// change.
//
// Of a [CEL] filter it knows the equalities with constants. A route that has some stands in a hash
// table under the values of the one that fewest other routes share, so that it is not even looked
// at for deltas with other values. Equal filters are evaluated once per delta.
type Table struct {
	entries  []Entry
	rules    []rule // by entry
	bySource map[string]*lists
	scratch  sync.Pool // of *readings
	counts   []count   // by entry
}

// rule is what the table knows of an entry's filter.
type rule struct {
	cel     *CEL  // nil: nothing
	numbers []int // of the fields of its equalities
	shared  int   // the number of its answer, which equal filters share; -1: there is no other
}

// lists has, for each op, the entries that want it of one source, and apart those that want objects
// that were there before.
type lists struct {
	live, initial [event.Left + 1][]*list
}

// NewTable makes a table. A Match names an entry by its place in entries.
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
				if e.Initial {
					l.initial[op] = add(l.initial[op], i, e.Born)
				}
			}
		}
	}
	b.finish()
	return t
}

// always is when the entries of a list of live deltas were born: it does not matter.
const always = math.MaxInt

// add appends i to the list of those that were born then, unless it is the last already: a source
// or op that is named twice is one.
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

// Match appends to dst, which the caller may reuse for the next delta, the verdicts about the
// routes that may want d, in the order of the entries. Of those that are not mentioned the
// equalities have said no, or a source, op or Initial; see [Table.Skipped]. What the filters cost
// together is bounded, see [expr.Budget]: those that are evaluated after it was used up fail. Match
// allocates nothing itself while dst has room.
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
		if d.Initial && l.born < d.Transit().Epoch {
			continue
		}
		dst = t.look(ctx, l, r, dst)
		l.seen.Add(1)
	}
	slices.SortFunc(dst[first:], func(a, b Match) int { return a.Entry - b.Entry })
	r.forget()
	t.scratch.Put(r)
	return dst
}

// look appends the verdicts about the entries of one list.
func (t *Table) look(ctx context.Context, l *list, r *readings, dst []Match) []Match {
	for _, i := range l.asked {
		dst = t.consider(ctx, i, r, dst)
	}
	for g := range l.groups {
		group := &l.groups[g]
		entries := group.all // it cannot be told
		if value, state := r.of(group.field, group.number); state == equality.Known {
			entries = group.byValue[value]
		}
		for _, i := range entries {
			dst = t.consider(ctx, i, r, dst)
		}
	}
	return dst
}

// consider appends the verdict about one entry, unless its equalities say no.
func (t *Table) consider(ctx context.Context, i int, r *readings, dst []Match) []Match {
	m, rule := Match{Entry: i}, &t.rules[i]
	j := unknown
	if rule.cel != nil {
		j = rule.cel.judge(r, rule.numbers)
	}
	switch {
	case j == no:
		return dst
	case !ready(t.entries[i].Ready):
		m.Verdict = Unready
	case j == yes:
		m.Verdict = Matched
	case rule.cel != nil:
		m = t.ask(i, func() (bool, error) { return rule.cel.settle(r.delta, t.answer(ctx, rule, r)) })
	default:
		m = t.Evaluate(ctx, i, r.delta)
	}
	t.counts[i].mentioned.Add(1)
	return append(dst, m)
}

// answer evaluates a filter, unless an equal one was.
func (t *Table) answer(ctx context.Context, rule *rule, r *readings) answer {
	if rule.shared < 0 {
		return rule.cel.evaluate(ctx, r.delta, &r.budget)
	}
	at := &r.answers[rule.shared]
	if !at.done {
		at.answer = rule.cel.evaluate(ctx, r.delta, &r.budget)
		at.done = true
		r.asked = append(r.asked, rule.shared)
	}
	return at.answer
}

// Ready reports whether the filter of one entry may be asked.
func (t *Table) Ready(entry int) bool { return ready(t.entries[entry].Ready) }

// Evaluate asks the filter of one entry, whether it is ready or not: for deltas that were put aside
// as Unready. A filter that panics has failed: the content of an object must not end the process.
func (t *Table) Evaluate(ctx context.Context, entry int, d *event.Delta) Match {
	f := t.entries[entry].Filter
	if f == nil {
		return Match{Entry: entry, Verdict: Matched}
	}
	return t.ask(entry, func() (bool, error) { return f.Match(ctx, d) })
}

// ask makes a verdict of what a filter says.
func (t *Table) ask(entry int, match func() (bool, error)) (m Match) {
	m.Entry = entry
	defer func() {
		if p := recover(); p != nil {
			// its text may quote the object
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

// Enters reports whether an entry that an update was matched for would be told of the delete of the
// object as it is now, and not as it was before: after a crash the filter is asked about the state
// on disk. An answer that costs too much counts as yes. The budget is shared by all that is asked
// about one delta. Nothing is counted or logged: it is not a delta that anybody gets.
func (t *Table) Enters(ctx context.Context, entry int, d *event.Delta, budget *expr.Budget) bool {
	e := &t.entries[entry]
	if d.Op != event.Updated || d.Old == nil || e.Filter == nil || !slices.Contains(e.Ops, event.Deleted) {
		return false
	}
	wants := func(last *event.Object) (wants, known bool) {
		gone := &event.Delta{Source: d.Source, Op: event.Deleted, Old: last, Seen: d.Seen}
		m := t.ask(entry, func() (bool, error) { return t.rules[entry].match(ctx, e.Filter, gone, budget) })
		return m.Verdict == Matched, m.Verdict != Failed
	}
	if before, known := wants(d.Old); before && known {
		return false // the usual case: one look
	}
	now, known := wants(d.New)
	return now || !known
}

// match asks a filter without counting what is absent.
func (r *rule) match(ctx context.Context, f Filter, d *event.Delta, budget *expr.Budget) (bool, error) {
	if r.cel == nil {
		return f.Match(ctx, d)
	}
	a := r.cel.evaluate(ctx, d, budget)
	if errors.Is(a.err, expr.ErrAbsent) {
		return false, nil
	}
	return a.ok, a.err
}
