package queue

// Changes is what changed in a queue since it was last handed over, for the checkpoint: the entries
// that were added, or that differ from what was handed over, and the numbers of those that were
// handed over and are gone. An entry that comes and goes in between leaves no trace. Whoever
// changes what is written of an entry notes it here.
type Changes struct {
	On   bool   // set once, before the first entry
	last uint64 // the number given last
	put  list
	gone []uint64
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

// restored takes up an entry that is written already.
func (c *Changes) restored(e *Entry, number uint64) {
	e.Saved.ID, e.Saved.written = number, true
	c.last = max(c.last, number)
}

// Any reports whether a number was ever given.
func (c *Changes) Any() bool { return c.last > 0 }

// Note says that e is not, or not any more, as it was handed over.
func (c *Changes) Note(e *Entry) {
	if c.On && !e.Saved.changed && e.Letter == 0 { // a letter is on disk itself
		e.Saved.changed = true
		c.put.push(e, byChange)
	}
}

// Report notes the progress of an entry, if there is any since the last time.
func (c *Changes) Report(e *Entry) {
	if e.Saved.Closed != e.Progress.Closed || e.Saved.Attempts != e.Progress.Attempts {
		e.Saved.Closed, e.Saved.Attempts = e.Progress.Closed, e.Progress.Attempts
		c.Note(e)
	}
}

// removed says that e is no longer pending.
func (c *Changes) removed(e *Entry) {
	if !c.On {
		return
	}
	if e.Saved.changed {
		e.Saved.changed = false
		c.put.remove(e, byChange)
	}
	if e.Saved.written {
		c.gone = append(c.gone, e.Saved.ID)
	}
}

// Len returns how many entries HandOver calls put for.
func (c *Changes) Len() int { return c.put.len }

// HandOver calls put for each entry that was added or changed, and returns the numbers of those
// that are gone.
func (q *Queue) HandOver(put func(*Entry)) (gone []uint64) {
	q.Tail.handOver()
	c := &q.Changes
	for e := c.put.head; e != nil; e = c.put.head {
		put(e)
		c.put.remove(e, byChange)
		e.Saved.changed, e.Saved.written = false, true
	}
	gone, c.gone = c.gone, nil
	return gone
}
