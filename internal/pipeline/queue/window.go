package queue

import (
	"container/heap"
	"time"
)

// Window configures how long entries wait in their lane for more deltas before they may be taken:
// for a quiet period, or, if lanes are groups, from the first delta of a group on. With the zero
// Window, none waits.
type Window struct {
	Quiet, Max time.Duration // until there was no delta for Quiet, or the first has waited for Max
	Grouped    bool          // lanes are groups: a batch has entries of one lane only
	Wait       time.Duration // the wait of a group
	Size       int           // the number of entries that complete a group
	Joint      bool          // a group is taken as one
}

// On reports whether any entry waits.
func (w *Window) On() bool { return w.Quiet > 0 || w.Grouped && w.Wait > 0 }

// end returns the end of a window that was opened at began, with fresh entries, the last added at
// now.
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

// windowOver reports whether the lane need not wait: its first entry has waited before.
func (s *Lane) windowOver() bool { return s.until.IsZero() || s.lane.head.takenBefore }

func (s *Lane) endWindow() { s.until, s.began = time.Time{}, time.Time{} }

// extend opens or extends the window of a lane after an entry was added; before is its previous
// state. In a lane without a window whose first entry was not taken yet, the new entry joins those
// that already wait for a worker. It reports whether the lane is now the first one due.
func (l *Lanes) extend(s *Lane, before laneState, now time.Time) (first bool) {
	switch before {
	case ready, blocked, gated:
		if s.until.IsZero() && !s.lane.head.takenBefore {
			return false
		}
	case idle, busy, delayed, debouncing:
	}
	l.wait(s, now)
	switch s.state {
	case ready:
		if !s.windowOver() {
			l.unready(s)
			l.makeReady(s)
		}
	case debouncing:
		if s.until.Before(s.at) { // otherwise the heap is corrected when the old end is reached
			s.at = s.until
			heap.Fix(&l.delayed, s.index)
		}
	case idle, busy, delayed, blocked, gated:
	}
	return l.first(s)
}

// Opens reports whether an entry that was just placed waits in a window, as the first one of its
// object: until when, and until when at most if further deltas extend the window.
func (l *Lanes) Opens(e *Entry) (until, latest time.Time, ok bool) {
	s, before := e.lane, e.links[byObject].prev
	if s.state != debouncing || before != nil && before.stage == Waiting {
		return until, latest, false
	}
	if latest = s.until; l.window.Quiet > 0 {
		latest = s.began.Add(l.window.Max)
	}
	return s.until, latest, true
}

// wait updates the debounce deadline of a lane after an entry was added.
func (l *Lanes) wait(s *Lane, now time.Time) {
	if s.began.IsZero() {
		s.began = now
	}
	s.until = l.window.end(s.began, now, s.untaken)
}

// takenFrom is called after entries of a group were taken: the remaining ones start the next group.
func (l *Lanes) takenFrom(s *Lane) {
	if l.window.Grouped && l.window.On() && s.untaken > 0 && s.until.IsZero() {
		l.wait(s, l.now)
	}
}

// debounce makes a lane wait for the end of its window.
func (l *Lanes) debounce(s *Lane) {
	s.state, s.at = debouncing, s.until
	l.debouncingLen += s.lane.len
	heap.Push(&l.delayed, s)
}

// wakeUp ends the window of a debouncing lane that was removed from the heap. It returns false if
// the window was extended in the meantime.
func (l *Lanes) wakeUp(s *Lane, now time.Time) bool {
	if s.state != debouncing {
		return true
	}
	if s.until.After(now) {
		s.at = s.until
		heap.Push(&l.delayed, s)
		return false
	}
	l.debouncingLen -= s.lane.len
	s.endWindow()
	return true
}

// endDebounce makes a debouncing lane ready.
func (l *Lanes) endDebounce(s *Lane) {
	heap.Remove(&l.delayed, s.index)
	l.debouncingLen -= s.lane.len
	s.endWindow()
	l.makeReady(s)
}
