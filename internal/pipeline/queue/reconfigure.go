package queue

// Reconfigure empties the queue for a new configuration of its route, and calls add with each
// pending entry, in order, to be added again with the Source Reconfigured. Entries and lanes are
// new then, because an abandoned worker may still hold the old ones; no other worker may hold any.
// dropped is called with each redelivered dead letter instead, which stays on disk.
func (q *Queue) Reconfigure(add func(*Entry), dropped func(letter uint64)) {
	from := *q
	*q = Queue{
		Lanes: Lanes{window: from.Lanes.window}, inOrder: from.inOrder, Tail: from.Tail, Absorbed: from.Absorbed,
		Changes: Changes{On: from.Changes.On, last: from.Changes.last, removedIDs: from.Changes.removedIDs},
	}
	q.Tail.entries, q.Tail.slots, q.Tail.bytes = list{}, nil, 0
	for e := range from.all() {
		if e.DeadLetter != 0 {
			dropped(e.DeadLetter)
			continue
		}
		add(e)
	}
}

// adopt copies an entry of the previous configuration to e, and returns its stage, in which it has
// no lane. Closed and Attempts of the Item refer to the new configuration.
func (q *Queue) adopt(e *Entry, i *Item) Stage {
	old, to := i.Old, Evaluating
	if old.stage < Evaluating {
		to = old.stage
	}
	e.Since, e.Unseen, e.Counted = old.Since, old.Unseen, old.Counted
	e.Limit.Later = old.Limit.Later
	e.Saved.ID, e.Saved.written = old.Saved.ID, old.Saved.written
	if old.Saved.changed || !old.Saved.written {
		q.Changes.Note(e)
	}
	e.Saved.Closed, e.Saved.Attempts = i.Closed, i.Attempts
	i.Tail = old.stage == Spilled
	if to == Evaluating || i.Closed != 0 || i.Attempts != 0 {
		e.Restored = old.Restored || old.stage == Attempted
		e.resume(i, &q.memory)
	}
	return to
}
