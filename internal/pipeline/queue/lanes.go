package queue

import (
	"container/heap"
	"time"
)

// Lanes holds the lanes by their states: those that can be taken, in order, and those that wait for
// a time or for the disk. A lane with entries that is in none of these is with a worker, or
// blocked.
type Lanes struct {
	ready    fifo
	readyLen int // the entries in them
	delayed  delays
	gated    fifo
	window   Window
	restLen  int       // the entries in lanes that rest
	now      time.Time // of the last wake
}

// makeReady lets s be taken, once its window is over.
func (l *Lanes) makeReady(s *Lane) {
	if !s.restless() {
		l.rest(s)
		return
	}
	s.state = ready
	l.ready.push(s)
	l.readyLen += s.lane.len
}

// unready takes s out of the ready list.
func (l *Lanes) unready(s *Lane) {
	l.ready.remove(s)
	s.state = idle
	l.readyLen -= s.lane.len
}

// gate makes a lane wait for the disk that was ready.
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

// extended is called after a lane got an entry.
func (l *Lanes) extended(s *Lane) {
	switch s.state {
	case idle:
		l.makeReady(s)
	case ready:
		l.readyLen++
	case resting:
		l.restLen++
	case busy, delayed, blocked, gated:
	}
}

// shortened is called after a lane lost an entry.
func (l *Lanes) shortened(s *Lane) {
	switch s.state {
	case ready:
		l.readyLen--
		if s.lane.len == 0 {
			l.unready(s)
		}
	case resting:
		l.restLen--
		fallthrough
	case delayed:
		if s.lane.len == 0 {
			heap.Remove(&l.delayed, s.index)
			s.state = idle
		}
	case gated: // by another entry, maybe, than the one that is first now
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

// Window returns how long entries wait for more.
func (l *Lanes) Window() Window { return l.window }

// Ready returns how many entries are in lanes that can be taken.
func (l *Lanes) Ready() int { return l.readyLen }

// Resting returns how many entries are in lanes whose window is open.
func (l *Lanes) Resting() int { return l.restLen }

// NextDue returns when the next lane becomes ready by the time; zero: there is none.
func (l *Lanes) NextDue() (at time.Time) {
	if len(l.delayed) > 0 {
		at = l.delayed[0].at
	}
	return at
}

// Wake makes the lanes ready whose time has come, and those whose objects are on disk.
func (l *Lanes) Wake(now time.Time) {
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
	}
}

// WakeAll makes all delayed lanes ready, but not those that rest.
func (l *Lanes) WakeAll() {
	var still delays
	for len(l.delayed) > 0 {
		s := heap.Pop(&l.delayed).(*Lane)
		if s.state == resting {
			still = append(still, s)
			continue
		}
		l.makeReady(s)
	}
	for _, s := range still {
		heap.Push(&l.delayed, s)
	}
}

// Gate returns a channel that is closed when a lane can be taken that waits for the disk; nil:
// there is none.
func (l *Lanes) Gate() <-chan struct{} {
	if s := l.gated.head; s != nil {
		return s.lane.head.Delta.Transit().Durable
	}
	return nil
}

// Gated reports whether a lane waits for the disk.
func (l *Lanes) Gated() bool { return l.gated.head != nil }

// GateIsOpen reports whether Wake would make a lane ready that waited for the disk.
func (l *Lanes) GateIsOpen() bool { return l.gated.head != nil && l.gated.head.lane.head.durable() }

// first reports whether s is the lane that is due first.
func (l *Lanes) first(s *Lane) bool { return len(l.delayed) > 0 && l.delayed[0] == s }
