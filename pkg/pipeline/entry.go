package pipeline

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// id names what is owed in order: an object of a source, or, with an empty source, a key of the route's own.
type id struct{ source, namespace, name string }

func objectID(d *event.Delta) id {
	key := d.Key()
	return id{d.Source, key.Namespace, key.Name}
}

// stage is how far an entry got. The entries of one object are always attempted ones, then waiting ones, then pending ones, then
// spilled ones.
type stage uint8

const (
	spilled   stage = iota // in the tail: neither in a lane nor, by its object, with those of the other stages
	pending                // admitted before the route was ready: neither filter nor key are known, and it is in no lane
	settling               // pending, and its filter is being asked; or restored, and not yet in its lane
	waiting                // in its lane, never attempted: it may be folded
	attempted              // in a batch, or back from one
)

// entry is one owed delta. The queue owns all of it but work, which belongs to the worker while the entry is in a batch.
type entry struct {
	delta        *event.Delta
	since        time.Time // when the first of the deltas that were folded into this one was seen
	lane, object *slot
	links        [4]links
	stage        stage
	taken        bool // in a batch at this moment
	restored     bool // owed since before a restart: it counts as attempted
	counted      bool // as matched
	unseen       bool // filter and key were not asked yet, or failed
	rested       bool // it was taken before: its lane does not wait for more because of it
	unlimited    bool // the limit was not asked yet, and is when it is taken, by limitKey
	limitKey     string
	pass         *rules.Pass // of the limit, which takes it back if nothing comes of the entry; nil: it does not
	group        *entry      // the last of those that are taken as one; nil: it is taken by itself
	letter       uint64      // the dead letter that it comes from; 0: none
	work         *work

	// For the checkpoint, see changes.
	id       uint64 // in the order of their coming; 0: nothing is tracked
	saved    bool   // it was handed over
	changed  bool   // it is to be handed over
	closed   uint64 // work.closed and work.attempts, as far as its worker has told
	attempts int
}

type links struct{ prev, next *entry }

// The lists that an entry is in: see slot, queue and changes.
const (
	byLane = iota
	byObject
	byAge
	byChange
)

// list is a list of entries through one of their links. Adding and removing allocate nothing.
type list struct {
	head, tail *entry
	len        int
}

func (l *list) push(e *entry, by int) { l.insert(e, nil, by) }

// insert puts e before next, at the end if next is nil.
func (l *list) insert(e, next *entry, by int) {
	prev := l.tail
	if next != nil {
		prev = next.links[by].prev
		next.links[by].prev = e
	} else {
		l.tail = e
	}
	if prev != nil {
		prev.links[by].next = e
	} else {
		l.head = e
	}
	e.links[by] = links{prev, next}
	l.len++
}

func (l *list) remove(e *entry, by int) {
	at := e.links[by]
	if at.prev != nil {
		at.prev.links[by].next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.links[by].prev = at.prev
	} else {
		l.tail = at.prev
	}
	e.links[by] = links{}
	l.len--
}

// slot is what is owed under one id: a lane of entries that run one after another, and the entries of one object. Without a key of
// the route's own these are the same entries.
type slot struct {
	id           id
	lane, object list
	state        laneState
	at           time.Time // delayed, resting: until when
	index        int       // delayed, resting: place in the heap
	fresh        int       // how many entries of the lane were never taken
	until, began time.Time // what was not taken before rests until then, since then; zero: it does not
	prev, next   *slot     // ready, gated: neighbours in the queue's list
	inTail       bool      // it is one of the tail's
}

// laneState is what keeps a lane from being taken.
type laneState uint8

const (
	idle    laneState = iota // nothing in it
	ready                    // nothing
	busy                     // a worker has a batch with entries of it
	delayed                  // its first entry is tried again later
	blocked                  // its first entry is of an object with earlier entries in another lane
	gated                    // the identity of its first entry's object is not on disk yet, see event.Delta.Durable
	resting                  // more may come for it, see shape
)

// lanes is a FIFO of lanes.
type lanes struct{ head, tail *slot }

func (l *lanes) push(s *slot) {
	s.prev, s.next = l.tail, nil
	if s.prev != nil {
		s.prev.next = s
	} else {
		l.head = s
	}
	l.tail = s
}

func (l *lanes) remove(s *slot) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.tail = s.prev
	}
	s.prev, s.next = nil, nil
}

// delays is a heap of the delayed and the resting lanes, the earliest first.
type delays []*slot

func (h delays) Len() int           { return len(h) }
func (h delays) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h delays) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *delays) Push(x any) {
	s := x.(*slot)
	s.index = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface.
func (h *delays) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return s
}
