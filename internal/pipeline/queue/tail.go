package queue

import (
	"maps"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Tail is the end of a queue, behind the head. A delta that comes when the head is full, or when
// there is a tail, stays in memory (stage Spilled) until a cut has written it to disk, and is then
// only counted in n. The deltas that are only on disk have numbers above after, are never changed,
// and are read back in the order of their numbers when the head has room.
type Tail struct {
	entries list          // the entries in memory, the oldest first
	slots   map[Key]*Lane // by object: they are coalesced if the disk has no room
	bytes   int64         // of the entries in memory
	n       int           // the number of deltas that are only on disk
	after   uint64
	since   time.Time // when the last delta before the tail was seen: none in the tail is older
	onDisk  int64     // the bytes on disk of head and tail, at the last cut
	// deleting are the numbers of entries that were coalesced or dropped after a hand-over, until
	// the disk has deleted them; true: their deletion was handed over.
	deleting map[uint64]bool
	reading  bool
	// before is the last number of the previous process. Deltas up to it count as attempted.
	before uint64
	// counted: deltas above this number were counted as matched when they passed the filter.
	counted uint64
}

// Len returns the number of deltas that are only on disk.
func (t *Tail) Len() int { return t.n }

// Bytes returns the size of the entries in memory on their way to the disk.
func (t *Tail) Bytes() int64 { return t.bytes }

// OnDisk returns the bytes on disk of head and tail, at the last cut.
func (t *Tail) OnDisk() int64 { return t.onDisk }

// dropped removes an entry that is no longer pending.
func (t *Tail) dropped(e *Entry) {
	t.bytes -= e.bytes
	t.entries.remove(e, byAge)
	if !e.Saved.written {
		return
	}
	if t.deleting == nil {
		t.deleting = map[uint64]bool{}
	}
	t.deleting[e.Saved.ID] = false
}

// handOver records that a cut is made, with which the disk deletes the numbers in deleting.
func (t *Tail) handOver() {
	for number := range t.deleting {
		t.deleting[number] = true
	}
}

// Spilled returns the number of entries of the tail in memory.
func (t *Tail) Spilled() int { return t.entries.len }

// add puts an entry at the end of the tail.
func (t *Tail) add(e *Entry, m *memory) {
	key := ObjectKey(e.Delta)
	s := t.slots[key]
	if s == nil {
		s = reuse(&m.lanes)
		s.key, s.inTail = key, true
		if t.slots == nil {
			t.slots = map[Key]*Lane{}
		}
		t.slots[key] = s
	}
	if t.n == 0 && t.entries.len == 0 {
		t.after, t.since = max(e.Saved.ID, 1)-1, e.Since
	}
	e.stage, e.object = Spilled, s
	s.object.push(e, byObject)
	t.entries.push(e, byAge)
	e.weigh(&t.bytes)
}

// remove removes an entry from the tail.
func (t *Tail) remove(e *Entry, m *memory) {
	t.bytes -= e.bytes
	e.bytes = 0
	t.entries.remove(e, byAge)
	e.object.object.remove(e, byObject)
	t.free(e.object, m)
}

// free drops an object that is not in use.
func (t *Tail) free(s *Lane, m *memory) {
	if s.object.len > 0 {
		return
	}
	delete(t.slots, s.key)
	*s = Lane{}
	keep(&m.lanes, s)
}

// Written records that the last hand-over is on disk, where the queue takes onDisk bytes. With
// forget it drops the unchanged entries of the tail from memory if whole returns true, which means
// that the disk has the complete delta; they are read back later.
func (q *Queue) Written(onDisk int64, forget bool, whole func(*event.Delta) bool) {
	t := &q.Tail
	t.onDisk = onDisk
	if !t.reading {
		maps.DeleteFunc(t.deleting, func(_ uint64, handedOver bool) bool { return handedOver })
	}
	if !forget {
		return
	}
	for e := t.entries.head; e != nil; {
		next := e.links[byAge].next
		if e.Saved.written && !e.Saved.changed && whole(e.Delta) {
			t.remove(e, &q.memory)
			t.n++
			*e = Entry{}
			keep(&q.memory.entries, e)
		}
		e = next
	}
}

// promote moves the first entry of the tail to the end of the head. No delta before it is only on
// disk.
func (q *Queue) promote(e *Entry) {
	q.Tail.remove(e, &q.memory)
	q.Tail.after, q.Tail.since = e.Saved.ID, e.Since
	q.Head.add(e, q.slot(ObjectKey(e.Delta)), Pending)
}

// Promote moves entries of the tail that are in memory into a head with a bound. It reports whether
// it moved any.
func (q *Queue) Promote(b Bound) (moved bool) {
	for q.Tail.n == 0 && q.Tail.entries.len > 0 && !q.Head.Full(b) {
		q.promote(q.Tail.entries.head)
		moved = true
	}
	return moved
}

// Part is a range of numbers to read from disk.
type Part struct {
	After, Before uint64 // exclusive; Before 0: no end
	Limit         int
	Bytes         int64 // it ends with the delta that reaches them
}

// NextPart returns the next part to read from disk, within limit, and the number of deltas that are
// only on disk; ok is false if there is none. The caller then calls ReadBack or EndReading.
func (t *Tail) NextPart(limit Bound) (part Part, n int, ok bool) {
	if t.n == 0 || limit.Entries <= 0 || limit.Bytes <= 0 {
		return part, 0, false
	}
	part = Part{After: t.after, Limit: limit.Entries, Bytes: limit.Bytes}
	if first := t.entries.head; first != nil {
		part.Before = first.Saved.ID
	}
	t.reading = true
	return part, t.n, true
}

// EndReading records that a part was not read.
func (t *Tail) EndReading() { t.reading = false }

// ReadBack processes a part that was read, when n deltas were only on disk. read is in the order of
// the numbers; add is called with the index of each delta that is still pending. It returns the
// number of deltas that the disk has lost.
func (q *Queue) ReadBack(part Part, n int, read []Read, add func(i int)) (lost int) {
	t := &q.Tail
	t.reading = false
	for i, o := range read {
		t.after = o.Number
		if _, gone := t.deleting[o.Number]; gone {
			n++
			continue
		}
		t.n--
		t.since = o.Seen
		add(i)
	}
	if len(read) > 0 { // a limit of the part may have ended it
		return 0
	}
	// All deltas before the next one in memory are read.
	if next := t.entries.head; part.Before > 0 {
		t.after = part.Before - 1
		if next != nil && next.Saved.ID == part.Before {
			q.promote(next)
		}
		return 0
	}
	t.n -= n
	return n
}

// Read is a delta that was read from disk.
type Read struct {
	Number uint64
	Seen   time.Time
}

// Restore sets the state of the tail after a start: the last number assigned, the number of deltas
// on disk beside those in read, which are added next, and the bytes of all.
func (q *Queue) Restore(read []Read, last uint64, others int, bytes int64) {
	t := &q.Tail
	if len(read) > 0 {
		latest := read[len(read)-1]
		t.after, t.since = latest.Number, latest.Seen
	}
	t.n, t.onDisk, t.before = others, bytes, max(t.after, last)
	t.counted = t.before
	q.Changes.last = t.before
}

// WasCounted reports whether a delta that is read from disk was counted as matched, if its filter
// was evaluated.
func (t *Tail) WasCounted(number uint64) bool { return number > t.counted }
