package deliver

import (
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// group is the entries that are taken as one. The batch sees the last one of them alone.
type group struct {
	all   []*queue.Entry  // nil: the batch is none
	alone [1]*queue.Entry // for members
}

// join returns what the batch has to see of entries.
func (g *group) join(entries []*queue.Entry) []*queue.Entry {
	g.all = nil
	if len(entries) > 0 && entries[0].Grouped() {
		g.all = entries
		return entries[len(entries)-1:]
	}
	return entries
}

// part gives all entries of the group the progress of the last one, and ends the group.
func (g *group) part() {
	if g.all != nil {
		g.share()
		g.all = nil
	}
}

// share gives the entries of a group the progress of their last one so far.
func (g *group) share() {
	if g.all == nil {
		return
	}
	last := g.all[len(g.all)-1].Progress
	for _, e := range g.all[:len(g.all)-1] {
		p := e.Progress
		p.State, p.Delay, p.Outcome, p.Dead = last.State, last.Delay, last.Outcome, last.Dead
		p.Attempts, p.Tries, p.Closed = last.Attempts, last.Tries, last.Closed
	}
}

// members returns those whose fate e shares.
func (g *group) members(e *queue.Entry) []*queue.Entry {
	if !e.Grouped() {
		return append(g.alone[:0], e)
	}
	return g.all
}

// appendDeltas appends what the handler has to see of an entry: all of a group.
func (g *group) appendDeltas(deltas []*event.Delta, e *queue.Entry) []*event.Delta {
	for _, m := range g.members(e) {
		deltas = append(deltas, m.Delta)
	}
	return deltas
}
