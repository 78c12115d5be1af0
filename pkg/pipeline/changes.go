package pipeline

// changes is what changed in a queue since it was last handed over, for the checkpoint: the entries that were added, or that differ
// from what was handed over, and the numbers of those that were handed over and are gone. An entry that comes and goes in between
// leaves no trace. Whoever changes what is written of an entry (see route.record) notes it here, under the lock of the route.
type changes struct {
	on   bool
	last uint64 // the number given last
	put  list
	gone []uint64
}

// added numbers a new entry.
func (c *changes) added(e *entry) {
	if !c.on {
		return
	}
	c.last++
	e.id = c.last
	c.note(e)
}

// restored takes up an entry that is written already.
func (c *changes) restored(e *entry, number uint64) {
	e.id, e.saved = number, true
	c.last = max(c.last, number)
}

// note says that e is not, or not any more, as it was handed over.
func (c *changes) note(e *entry) {
	if c.on && !e.changed && e.letter == 0 { // a letter is on disk itself
		e.changed = true
		c.put.push(e, byChange)
	}
}

// removed says that e is owed no longer.
func (c *changes) removed(e *entry) {
	if !c.on {
		return
	}
	if e.changed {
		e.changed = false
		c.put.remove(e, byChange)
	}
	if e.saved {
		c.gone = append(c.gone, e.id)
	}
}

// handOver calls put for each entry that was added or changed, and returns the numbers of those that are gone.
func (c *changes) handOver(put func(*entry)) (gone []uint64) {
	for e := c.put.head; e != nil; e = c.put.head {
		put(e)
		c.put.remove(e, byChange)
		e.changed, e.saved = false, true
	}
	gone, c.gone = c.gone, nil
	return gone
}
