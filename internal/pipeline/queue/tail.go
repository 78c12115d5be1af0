package queue

import (
	"maps"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// deltaBytes is what a delta takes beside its objects' JSON.
const deltaBytes = 256

// Tail is the end of a queue, behind the head, which is what the rest of the queue is about. A
// delta that comes when the head is full, or when there is a tail already, is in memory (stage
// Spilled) until a cut with it is on disk, and is then no more than one in a count. What is on disk
// alone has numbers higher than after, is none of the entries in memory, and is never changed: it
// is read back in the order of the numbers when the head has room.
type Tail struct {
	entries list          // those in memory, the oldest first
	slots   map[Key]*Lane // of their objects: they coalesce if the disk has no room
	bytes   int64         // of those in memory
	n       int           // on disk alone
	after   uint64
	since   time.Time // when what came before it was seen: none is older
	onDisk  int64     // bytes that the route takes on disk, of head and tail, at the last cut
	// gone are those that were coalesced or dropped after they had been handed over, until they are
	// gone on disk too; true: that they are is handed over.
	gone    map[uint64]bool
	reading bool
	// before: numbers up to this one were given in a life before this one. They count as attempted.
	before uint64
	// counted: above this one a delta that has passed the filter was counted as matched.
	counted uint64
}

// Len returns how many deltas are on disk alone.
func (t *Tail) Len() int { return t.n }

// Bytes returns what the entries take that are in memory on their way to the disk.
func (t *Tail) Bytes() int64 { return t.bytes }

// OnDisk returns what the queue takes on disk, head and tail, at the last cut.
func (t *Tail) OnDisk() int64 { return t.onDisk }

// gave takes an entry out that is no longer pending.
func (t *Tail) gave(e *Entry) {
	t.bytes -= size(e.Delta)
	t.entries.remove(e, byAge)
	if !e.Saved.written {
		return
	}
	if t.gone == nil {
		t.gone = map[uint64]bool{}
	}
	t.gone[e.Saved.ID] = false
}

// handOver says that a cut is made, with which the disk forgets what is gone.
func (t *Tail) handOver() {
	for number := range t.gone {
		t.gone[number] = true
	}
}

// Spilled returns how many entries of the tail are in memory.
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
	t.bytes += size(e.Delta)
}

// remove takes an entry out of the tail.
func (t *Tail) remove(e *Entry, m *memory) {
	t.bytes -= size(e.Delta)
	t.entries.remove(e, byAge)
	e.object.object.remove(e, byObject)
	t.free(e.object, m)
}

// free forgets an object that is out of use.
func (t *Tail) free(s *Lane, m *memory) {
	if s.object.len > 0 {
		return
	}
	delete(t.slots, s.key)
	*s = Lane{}
	keep(&m.lanes, s)
}

// Written says that all that was handed over is on disk, where the queue takes so many bytes. With
// forget, entries of the tail that are there as they are, and of which whole says that the disk has
// all, are forgotten: they are read back.
func (q *Queue) Written(onDisk int64, forget bool, whole func(*event.Delta) bool) {
	t := &q.Tail
	t.onDisk = onDisk
	if !t.reading {
		maps.DeleteFunc(t.gone, func(_ uint64, handedOver bool) bool { return handedOver })
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

// promote moves the first of the tail's entries in memory, with nothing before it on disk, to the
// end of the head.
func (q *Queue) promote(e *Entry) {
	q.Tail.remove(e, &q.memory)
	q.Tail.after, q.Tail.since = e.Saved.ID, e.Since
	q.Head.add(e, q.slot(ObjectKey(e.Delta)), Pending)
}

// Promote moves entries of the tail into a head of the given capacity, as far as they need not be
// read. It reports whether it moved any.
func (q *Queue) Promote(capacity int) (moved bool) {
	for q.Tail.n == 0 && q.Tail.entries.len > 0 && q.Head.Len() < capacity {
		q.promote(q.Tail.entries.head)
		moved = true
	}
	return moved
}

// Part is a range of numbers to read from disk.
type Part struct {
	After, Before uint64 // exclusive; Before 0: there is no end
	Limit         int
}

// NextPart returns what is to be read next from the disk, at most limit, and how many deltas are
// there alone; ok is false if that is nothing. ReadBack or EndReading ends the reading.
func (t *Tail) NextPart(limit int) (part Part, n int, ok bool) {
	if t.n == 0 || limit <= 0 {
		return part, 0, false
	}
	part = Part{After: t.after, Limit: limit}
	if first := t.entries.head; first != nil {
		part.Before = first.Saved.ID
	}
	t.reading = true
	return part, t.n, true
}

// EndReading says that a part was not read.
func (t *Tail) EndReading() { t.reading = false }

// ReadBack takes what was read of a part, when n deltas were on disk alone: numbers, in order, each
// with when its delta was seen; add is called with the index of each that is still pending. It
// returns how many deltas the disk lacks.
func (q *Queue) ReadBack(part Part, n int, read []Read, add func(i int)) (lost int) {
	t := &q.Tail
	t.reading = false
	for i, o := range read {
		t.after = o.Number
		if _, gone := t.gone[o.Number]; gone {
			n++
			continue
		}
		t.n--
		t.since = o.Seen
		add(i)
	}
	if len(read) == part.Limit {
		return 0
	}
	// There is no more before the next one in memory.
	if next := t.entries.head; part.Before > 0 {
		t.after = part.Before - 1
		if next != nil && next.Saved.ID == part.Before {
			q.promote(next)
		}
		return 0
	}
	if lost = max(0, n-len(read)); lost > 0 {
		t.n -= lost
	}
	return lost
}

// Read is a delta that was read from disk.
type Read struct {
	Number uint64
	Seen   time.Time
}

// Restore says what is on disk before a start: the last number that was given, how many deltas are
// there beside those in read, which are added next, and the bytes of all.
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
// was asked.
func (t *Tail) WasCounted(number uint64) bool { return number > t.counted }

// size is what a delta takes in memory. Of an update that is the new state: the old one is most
// often what the delta before it, which waits too, has as the new one. So it may be twice as much.
func size(d *event.Delta) int64 {
	n := deltaBytes + len(d.Object().JSON())
	if d.Event != nil {
		n += len(d.Event.Data)
	}
	return int64(n)
}
