package queue

// Reconfigure empties the queue, whose route gets another configuration, and calls add with each
// entry that was pending, in order, to be added again with the Source Reconfigured. Entries and
// lanes are new then, because a worker that was given up may have the old ones. A dead letter is
// kept on disk and is not added: dropped is called with it. No entry may be taken but by such a
// worker.
func (q *Queue) Reconfigure(add func(*Entry), dropped func(letter uint64)) {
	from := *q
	*q = Queue{
		Lanes: Lanes{window: from.Lanes.window}, inOrder: from.inOrder, Tail: from.Tail,
		Changes: Changes{On: from.Changes.On, last: from.Changes.last, gone: from.Changes.gone},
	}
	q.Tail.entries, q.Tail.slots, q.Tail.bytes = list{}, nil, 0
	for e := range from.all() {
		if e.Letter != 0 {
			dropped(e.Letter)
			continue
		}
		add(e)
	}
}

// adopt makes e what an entry of the previous configuration was, in the stage that it returns, in
// which it has no lane. Closed and Attempts of the Item are by the configuration of now.
func (q *Queue) adopt(e *Entry, i *Item) Stage {
	old, to := i.Old, Settling
	if old.stage < Settling {
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
	if to == Settling || i.Closed != 0 || i.Attempts != 0 {
		e.Restored = old.Restored || old.stage == Attempted
		e.resume(i, &q.memory)
	}
	return to
}
