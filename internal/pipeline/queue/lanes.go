package queue

import (
	"container/heap"
	"time"

	"github.com/deltarouter/deltarouter/internal/transit"
)

// Lanes contains the lanes by state: those that can be taken, in order, and those that wait for a
// time or for the disk. Any other lane with entries is with a worker, or blocked.
type Lanes struct {
	ready         fifo
	readyLen      int // the number of entries in ready lanes
	delayed       delays
	gated         fifo
	window        Window
	debouncingLen int       // the number of entries in debouncing lanes
	now           time.Time // of the last Wake
}

// makeReady makes s ready, or waits for the end of its window.
func (l *Lanes) makeReady(s *Lane) {
	if !s.windowOver() {
		l.debounce(s)
		return
	}
	s.state = ready
	l.ready.push(s)
	l.readyLen += s.lane.len
}

// unready removes s from the ready list.
func (l *Lanes) unready(s *Lane) {
	l.ready.remove(s)
	s.state = idle
	l.readyLen -= s.lane.len
}

// gate makes a ready lane wait for the disk.
func (l *Lanes) gate(s *Lane) {
	l.unready(s)
	s.state = gated
	l.gated.push(s)
}

// delay makes a lane wait until a time.
func (l *Lanes) delay(s *Lane, at time.Time) {
	s.state, s.at = delayed, at
	heap.Push(&l.delayed, s)
}

// extended is called after an entry was added to a lane.
func (l *Lanes) extended(s *Lane) {
	switch s.state {
	case idle:
		l.makeReady(s)
	case ready:
		l.readyLen++
	case debouncing:
		l.debouncingLen++
	case busy, delayed, blocked, gated:
	}
}

// shortened is called after an entry was removed from a lane.
func (l *Lanes) shortened(s *Lane) {
	switch s.state {
	case ready:
		l.readyLen--
		if s.lane.len == 0 {
			l.unready(s)
		}
	case debouncing:
		l.debouncingLen--
		fallthrough
	case delayed:
		if s.lane.len == 0 {
			heap.Remove(&l.delayed, s.index)
			s.state = idle
		}
	case gated: // the entry that caused it may be another than the removed one
		l.gated.remove(s)
		fallthrough
	case blocked: // likewise
		s.state = idle
		if s.lane.len > 0 {
			l.makeReady(s)
		}
	case idle, busy:
	}
	if s.lane.len == 0 {
		s.endWindow()
	}
}

// Window returns the window of new entries.
func (l *Lanes) Window() Window { return l.window }

// Ready returns the number of entries in lanes that can be taken.
func (l *Lanes) Ready() int { return l.readyLen }

// Debouncing returns the number of entries in lanes whose window is open.
func (l *Lanes) Debouncing() int { return l.debouncingLen }

// NextDue returns the time at which the next delayed lane becomes ready; zero: there is none.
func (l *Lanes) NextDue() (at time.Time) {
	if len(l.delayed) > 0 {
		at = l.delayed[0].at
	}
	return at
}

// Wake makes ready the lanes whose delay is over, and those whose objects are on disk. It reports
// whether there are any of the latter.
func (l *Lanes) Wake(now time.Time) (opened bool) {
	l.now = now
	for len(l.delayed) > 0 && !l.delayed[0].at.After(now) {
		if s := heap.Pop(&l.delayed).(*Lane); l.wakeUp(s, now) {
			l.makeReady(s)
		}
	}
	// Gates open in the order in which they were made.
	for s := l.gated.head; s != nil && s.lane.head.durable(); s = l.gated.head {
		l.gated.remove(s)
		l.makeReady(s)
		opened = true
	}
	return opened
}

// WakeAll makes all delayed lanes ready, but not the debouncing ones.
func (l *Lanes) WakeAll() {
	var still delays
	for len(l.delayed) > 0 {
		s := heap.Pop(&l.delayed).(*Lane)
		if s.state == debouncing {
			still = append(still, s)
			continue
		}
		l.makeReady(s)
	}
	for _, s := range still {
		heap.Push(&l.delayed, s)
	}
}

// Gate returns a channel that is closed when the first gated lane can be taken; nil: there is none.
func (l *Lanes) Gate() <-chan struct{} {
	if s := l.gated.head; s != nil {
		return transit.Of(s.lane.head.Delta).Durable
	}
	return nil
}

// Gated reports whether a lane waits for the disk.
func (l *Lanes) Gated() bool { return l.gated.head != nil }

// GateIsOpen reports whether Wake would make a gated lane ready.
func (l *Lanes) GateIsOpen() bool { return l.gated.head != nil && l.gated.head.lane.head.durable() }

// first reports whether s is the first of the delayed lanes.
func (l *Lanes) first(s *Lane) bool { return len(l.delayed) > 0 && l.delayed[0] == s }
