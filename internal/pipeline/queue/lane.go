package queue

import "time"

// Lane is a FIFO of entries with one key, delivered one after another, and also the list of the
// entries of one object. If the route has no key expression, both lists have the same entries.
type Lane struct {
	key          Key
	lane, object list
	state        laneState
	at           time.Time // delayed, debouncing: the end of the delay
	index        int       // delayed, debouncing: the index in the heap
	untaken      int       // the number of entries of the lane that were never taken
	// the end and the start of the window of the entries that were never taken; zero: none
	until, began time.Time
	prev, next   *Lane // ready, gated: neighbours in the list
	inTail       bool  // it belongs to the tail
}

// laneState is the reason why a lane cannot be taken.
type laneState uint8

const (
	idle    laneState = iota // it has no entries
	ready                    // it can be taken
	busy                     // a worker has a batch with entries of it
	delayed                  // its first entry is retried later
	blocked                  // the object of its first entry has earlier entries in another lane
	// the identity of the object of its first entry is not on disk yet, see transit.State.Durable
	gated
	debouncing // its window is open, see Window
)

// fifo is a FIFO of lanes.
type fifo struct{ head, tail *Lane }

func (l *fifo) push(s *Lane) {
	s.prev, s.next = l.tail, nil
	if s.prev != nil {
		s.prev.next = s
	} else {
		l.head = s
	}
	l.tail = s
}

func (l *fifo) remove(s *Lane) {
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

// delays is a heap of the delayed and the debouncing lanes, the earliest first.
type delays []*Lane

func (h delays) Len() int           { return len(h) }
func (h delays) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h delays) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *delays) Push(x any) {
	s := x.(*Lane)
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
