package filters

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Entry is what a route wants.
type Entry struct {
	Sources []string
	Ops     []event.Op
	Initial bool // also objects that were there before the router first looked
	// Born is how often the configuration had been reloaded when the route appeared; -1: it was there before the router started. Of a
	// watch that was added later (see [event.Delta.Epoch]) it does not take what is Initial.
	Born   int
	Filter Filter // nil: everything of these sources and ops
	// Ready is closed once Filter may be asked: it looks things up, and what it looks up must be there first. nil: at any time.
	Ready <-chan struct{}
}

// Verdict is what a [Table] found out about one route and one delta.
type Verdict uint8

// The verdicts.
const (
	Filtered Verdict = iota // the route's filter does not want it
	Matched                 // the route wants it
	Unready                 // the filter was not asked, because the entry is not ready
	Failed                  // the filter failed, see Match.Err
)

// Match is the verdict about one entry.
type Match struct {
	Entry   int // its place in the entries that the table was made of
	Verdict Verdict
	Err     error
}

// Table finds the routes that want a delta. It is immutable and safe for concurrent use.
type Table struct {
	entries  []Entry
	bySource map[string]*candidates
}

// candidates lists, for each op, the entries that want it of one source, and apart those that want objects that were there before.
type candidates struct {
	live, initial [event.Sync + 1][]int
}

// NewTable makes a table. A Match names an entry by its place in entries.
func NewTable(entries []Entry) *Table {
	t := &Table{entries: entries, bySource: map[string]*candidates{}}
	for i, e := range entries {
		for _, source := range e.Sources {
			c := t.bySource[source]
			if c == nil {
				c = &candidates{}
				t.bySource[source] = c
			}
			for _, op := range e.Ops {
				c.live[op] = add(c.live[op], i)
				if e.Initial {
					c.initial[op] = add(c.initial[op], i)
				}
			}
		}
	}
	return t
}

// add appends i unless it is the last already: a source or op that is named twice is one.
func add(list []int, i int) []int {
	if n := len(list); n > 0 && list[n-1] == i {
		return list
	}
	return append(list, i)
}

// Candidates returns the entries that want d as far as source, op and Initial tell. The slice is shared and must not be modified.
func (t *Table) Candidates(d *event.Delta) []int {
	c := t.bySource[d.Source]
	if c == nil || int(d.Op) >= len(c.live) {
		return nil
	}
	if d.Initial {
		return c.initial[d.Op]
	}
	return c.live[d.Op]
}

// Match appends the verdict about each candidate to dst, which the caller may reuse for the next delta. It allocates nothing itself
// while dst has room.
func (t *Table) Match(ctx context.Context, d *event.Delta, dst []Match) []Match {
	for _, i := range t.Candidates(d) {
		if d.Initial && t.entries[i].Born < d.Epoch {
			continue
		}
		if !ready(t.entries[i].Ready) {
			dst = append(dst, Match{Entry: i, Verdict: Unready})
			continue
		}
		dst = append(dst, t.Evaluate(ctx, i, d))
	}
	return dst
}

// Ready reports whether the filter of one entry may be asked.
func (t *Table) Ready(entry int) bool { return ready(t.entries[entry].Ready) }

// Evaluate asks the filter of one entry, whether it is ready or not: for deltas that were put aside as Unready. A filter that panics
// has failed: the content of an object must not end the process.
func (t *Table) Evaluate(ctx context.Context, entry int, d *event.Delta) (m Match) {
	m.Entry = entry
	f := t.entries[entry].Filter
	if f == nil {
		m.Verdict = Matched
		return m
	}
	defer func() {
		if p := recover(); p != nil {
			m.Verdict, m.Err = Failed, fmt.Errorf("filter panicked with a %T", p) // its text may quote the object
		}
	}()
	switch ok, err := f.Match(ctx, d); {
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
