package deliver

import (
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// group is the entries that are taken as one. The batch processes only the last of them.
type group struct {
	all   []*queue.Entry  // nil: the batch is not a group
	alone [1]*queue.Entry // for members
}

// join returns the entries that the batch processes.
func (g *group) join(entries []*queue.Entry) []*queue.Entry {
	g.all = nil
	if len(entries) > 0 && entries[0].Grouped() {
		g.all = entries
		return entries[len(entries)-1:]
	}
	return entries
}

// part copies the progress of the last entry to all entries of the group, and ends the group.
func (g *group) part() {
	if g.all != nil {
		g.share()
		g.all = nil
	}
}

// share copies the progress of the last entry of a group to the others.
func (g *group) share() {
	if g.all == nil {
		return
	}
	last := g.all[len(g.all)-1].Progress
	for _, e := range g.all[:len(g.all)-1] {
		p := e.Progress
		p.State, p.Delay, p.Outcome, p.Dead = last.State, last.Delay, last.Outcome, last.Dead
		p.Attempts, p.Tries, p.Closed = last.Attempts, last.Tries, last.Closed
		e.Trace.Share(g.all[len(g.all)-1].Trace)
	}
}

// members returns the entries that share the result of e.
func (g *group) members(e *queue.Entry) []*queue.Entry {
	if !e.Grouped() {
		return append(g.alone[:0], e)
	}
	return g.all
}

// appendDeltas appends the deltas of an entry for the handler: all of a group. A delta that is
// traced is a copy with the span of its entry.
func (g *group) appendDeltas(deltas []*event.Delta, e *queue.Entry) []*event.Delta {
	for _, m := range g.members(e) {
		d := m.Delta
		if parent := m.Trace.TraceParent(); parent != "" {
			traced := *d
			traced.TraceParent, d = parent, &traced
		}
		deltas = append(deltas, d)
	}
	return deltas
}
