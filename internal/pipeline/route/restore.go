package route

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// unseen, among the targets that are done with a delta, records that the filter and key of the
// route are still to be evaluated for it, or failed. No target has this name.
const unseen = ""

// restore enqueues the deltas of the checkpoint: pending contains the first of them, or all, and of
// their number. It restores nothing and returns an error if the queue is not empty, or if pending
// is inconsistent.
func (b *backlog) restore(pending []checkpoint.Pending, of checkpoint.Backlog) error {
	pending = slices.SortedFunc(slices.Values(pending), func(a, b checkpoint.Pending) int { return cmp.Compare(a.ID, b.ID) })
	for i, o := range pending {
		switch {
		case o.Delta == nil || o.Delta.Object() == nil:
			return fmt.Errorf("delta %d has no object", o.ID)
		case i > 0 && pending[i-1].ID == o.ID:
			return fmt.Errorf("there are two deltas %d", o.ID)
		}
	}
	switch {
	case !b.queue.Changes.On:
		return errors.New("the pipeline is not durable")
	case b.queue.Changes.Any():
		return errors.New("it has pending deltas already")
	}
	pending = b.room.first(pending)
	b.queue.Restore(numbers(pending), of.Last, max(0, of.N-len(pending)), of.Bytes)
	for _, o := range pending {
		b.readmit(o)
	}
	return nil
}

// readmit enqueues a delta that is on disk.
func (b *backlog) readmit(o checkpoint.Pending) {
	var closed uint64
	for i, s := range b.settings.Sinks {
		if slices.Contains(o.Closed, s.Name) {
			closed |= 1 << i
		}
	}
	e := b.add(queue.Item{
		Delta: o.Delta, From: queue.Restored, Number: o.ID, Unseen: slices.Contains(o.Closed, unseen),
		Limit: queue.Limit{Later: o.Unlimited}, Closed: closed, Attempts: o.Attempts,
	})
	if bits.OnesCount64(closed) == len(b.settings.Sinks) {
		b.queue.Remove(e)
		return
	}
	e.Counted = !e.Unseen && b.queue.Tail.WasCounted(o.ID)
	b.allPlaced, b.bare = false, b.bare || o.Delta.LacksNew()
}

// dirty returns the changes of the pending deltas since the last call.
func (b *backlog) dirty() (put []checkpoint.Pending, removed []uint64) {
	if n := b.queue.Changes.Len(); n > 0 {
		put = make([]checkpoint.Pending, 0, n)
	}
	sinks := b.settings.Sinks
	if b.exchanging() { // the results so far refer to the previous sinks
		sinks = b.before.Sinks
	}
	names := namesOf(sinks)
	removed = b.queue.HandOver(func(e *queue.Entry) {
		put = append(put, checkpoint.Pending{
			ID: e.Saved.ID, Delta: e.Delta, Closed: names(e), Attempts: e.Saved.Attempts, Unlimited: e.Limit.Later,
		})
	})
	return put, removed
}

// namesOf returns a function that lists the names of the targets that are done with an entry. Most
// entries have the same set, so the lists are shared.
func namesOf(sinks []spec.NamedSink) func(e *queue.Entry) []string {
	type key struct {
		closed uint64
		unseen bool
	}
	var lists map[key][]string
	return func(e *queue.Entry) []string {
		k := key{e.Saved.Closed, e.Unseen}
		if k == (key{}) { // the usual case
			return nil
		}
		list, known := lists[k]
		if known {
			return list
		}
		for i, s := range sinks {
			if e.Saved.Closed&(1<<i) != 0 {
				list = append(list, s.Name)
			}
		}
		if e.Unseen { // a name that no sink can have
			list = append(list, unseen)
		}
		if lists == nil {
			lists = map[key][]string{}
		}
		lists[k] = list
		return list
	}
}

// adoptAll assigns lanes to all pending deltas by the present configuration. The handler gets each
// delta again; sinks that were done with it, by name, do not. Entries and lanes are copied, because
// an abandoned worker may still hold the old ones. No batch may be in progress. forgotten is called
// with each pending redelivery, which stays a dead letter.
func (b *backlog) adoptAll(forgotten func(letter uint64)) {
	sinks := b.before.Sinks
	b.queue.Reconfigure(func(e *queue.Entry) { b.adopt(e, sinks) }, forgotten)
	b.before = nil
}

// adopt enqueues a copy of an entry in a stage without a lane. sinks are those of the old
// configuration.
func (b *backlog) adopt(old *queue.Entry, sinks []spec.NamedSink) {
	e := b.add(queue.Item{
		Delta: old.Delta, From: queue.Reconfigured, Old: old,
		Closed: translate(old.Saved.Closed, sinks, b.settings.Sinks), Attempts: old.Saved.Attempts,
	})
	if bits.OnesCount64(e.Saved.Closed) == len(b.settings.Sinks) {
		if e.Counted {
			b.settings.Count().Delivered.Inc()
		}
		b.queue.Remove(e)
	}
}

// translate converts the bit set of the sinks that are done with a delta from the order of one list
// of sinks to the order of another.
func translate(closed uint64, from, to []spec.NamedSink) (result uint64) {
	for at, s := range to {
		for i := range from {
			if from[i].Name == s.Name && closed&(1<<i) != 0 {
				result |= 1 << at
			}
		}
	}
	return result
}
