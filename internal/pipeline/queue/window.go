package queue

import (
	"container/heap"
	"time"
)

// Window says how long entries wait in their lane before they may be taken, so that more can come:
// for a quiet period, or, where lanes are groups, from the first of a group on. The zero Window
// makes none wait.
type Window struct {
	Quiet, Max time.Duration // until nothing has come for Quiet, or the first has waited for Max
	Grouped    bool          // lanes are groups: a batch has entries of one lane alone
	Wait       time.Duration // of a group
	Size       int           // a group of so many is complete
	Joint      bool          // a group is taken as one
}

// On reports whether any entry waits.
func (w *Window) On() bool { return w.Quiet > 0 || w.Grouped && w.Wait > 0 }

// end returns when a window ends that was opened at began, when fresh entries are in it and the
// last came now.
func (w *Window) end(began, now time.Time, fresh int) (until time.Time) {
	if w.Quiet > 0 {
		until = now.Add(w.Quiet)
		if latest := began.Add(w.Max); latest.Before(until) {
			until = latest
		}
	} else {
		until = began.Add(w.Wait)
	}
	if w.Grouped && fresh >= w.Size {
		return now
	}
	return until
}

// restless reports whether the lane need not wait for more: its first entry has done so before.
func (s *Lane) restless() bool { return s.until.IsZero() || s.lane.head.rested }

func (s *Lane) endWindow() { s.until, s.began = time.Time{}, time.Time{} }

// extend opens or extends the window of a lane to which an entry was just added, and which was in
// state before. An entry goes with those that wait for a worker already, or for something else. It
// reports whether the lane is the one that is due first.
func (l *Lanes) extend(s *Lane, before laneState, now time.Time) (first bool) {
	switch before {
	case ready, blocked, gated:
		if s.until.IsZero() && !s.lane.head.rested {
			return false
		}
	case idle, busy, delayed, resting:
	}
	l.wait(s, now)
	switch s.state {
	case ready:
		if !s.restless() {
			l.unready(s)
			l.makeReady(s)
		}
	case resting:
		if s.until.Before(s.at) { // else the window is looked at when it would have been over
			s.at = s.until
			heap.Fix(&l.delayed, s.index)
		}
	case idle, busy, delayed, blocked, gated:
	}
	return l.first(s)
}

// wait updates the end of a lane's window after an entry was added.
func (l *Lanes) wait(s *Lane, now time.Time) {
	if s.began.IsZero() {
		s.began = now
	}
	s.until = l.window.end(s.began, now, s.fresh)
}

// takenFrom is called when entries of a lane were taken that is a group: what is left is the
// beginning of another one.
func (l *Lanes) takenFrom(s *Lane) {
	if l.window.Grouped && l.window.On() && s.fresh > 0 && s.until.IsZero() {
		l.wait(s, l.now)
	}
}

// rest makes a lane wait for the end of its window.
func (l *Lanes) rest(s *Lane) {
	s.state, s.at = resting, s.until
	l.restLen += s.lane.len
	heap.Push(&l.delayed, s)
}

// wakeUp is called when the first of the delayed lanes was taken from the heap at its time. It
// returns false if the window was extended meanwhile.
func (l *Lanes) wakeUp(s *Lane, now time.Time) bool {
	if s.state != resting {
		return true
	}
	if s.until.After(now) {
		s.at = s.until
		heap.Push(&l.delayed, s)
		return false
	}
	l.restLen -= s.lane.len
	s.endWindow()
	return true
}

// endRest makes a resting lane ready.
func (l *Lanes) endRest(s *Lane) {
	heap.Remove(&l.delayed, s.index)
	l.restLen -= s.lane.len
	s.endWindow()
	l.makeReady(s)
}
