package queue

// Changes is the dirty set of a queue for the checkpoint: the entries that were added or changed
// since the last hand-over, and the numbers of entries that were removed. An entry that was added
// and removed between two hand-overs leaves no trace. Code that changes a persistent field of an
// entry calls Note.
type Changes struct {
	On         bool   // set once, before the first entry
	last       uint64 // the last number assigned
	put        list
	removedIDs []uint64
}

// added numbers a new entry.
func (c *Changes) added(e *Entry) {
	if !c.On {
		return
	}
	c.last++
	e.Saved.ID = c.last
	c.Note(e)
}

// restored tracks an entry that is already on disk.
func (c *Changes) restored(e *Entry, number uint64) {
	e.Saved.ID, e.Saved.written = number, true
	c.last = max(c.last, number)
}

// Any reports whether a number was ever assigned.
func (c *Changes) Any() bool { return c.last > 0 }

// Note marks an entry as dirty.
func (c *Changes) Note(e *Entry) {
	if c.On && !e.Saved.changed && e.DeadLetter == 0 { // a dead letter is on disk itself
		e.Saved.changed = true
		c.put.push(e, byChange)
	}
}

// Report copies the progress of an entry to its saved state, and marks the entry as dirty if it has
// changed.
func (c *Changes) Report(e *Entry) {
	if e.Saved.Closed != e.Progress.Closed || e.Saved.Attempts != e.Progress.Attempts {
		e.Saved.Closed, e.Saved.Attempts = e.Progress.Closed, e.Progress.Attempts
		c.Note(e)
	}
}

// removed records that e is no longer pending.
func (c *Changes) removed(e *Entry) {
	if !c.On {
		return
	}
	if e.Saved.changed {
		e.Saved.changed = false
		c.put.remove(e, byChange)
	}
	if e.Saved.written {
		c.removedIDs = append(c.removedIDs, e.Saved.ID)
	}
}

// Len returns the number of entries for which HandOver calls put.
func (c *Changes) Len() int { return c.put.len }

// HandOver calls put for each entry that was added or changed, and returns the numbers of the
// removed ones.
func (q *Queue) HandOver(put func(*Entry)) (gone []uint64) {
	q.Tail.handOver()
	c := &q.Changes
	for e := c.put.head; e != nil; e = c.put.head {
		put(e)
		c.put.remove(e, byChange)
		e.Saved.changed, e.Saved.written = false, true
	}
	gone, c.removedIDs = c.removedIDs, nil
	return gone
}
