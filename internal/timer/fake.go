package timer

import (
	"container/heap"
	"sync"
	"time"
)

// Fake is a clock that stands still until [Fake.Advance] is called. Timers are called only by
// Advance, even those set to a time in the past. The test must wait for the effects of one Advance
// before the next, or timers that these effects set are called late. It is safe for concurrent use.
type Fake struct {
	mu   sync.Mutex
	now  time.Time
	set  fakeTimers
	last uint64 // the number of calls of Set
}

var _ Clock = (*Fake)(nil)

// NewFake returns a clock that shows start, without a monotonic reading.
func NewFake(start time.Time) *Fake { return &Fake{now: start.Round(0)} }

// Now implements Clock.
func (c *Fake) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer implements Clock.
func (c *Fake) NewTimer(f func()) Timer { return &fakeTimer{clock: c, f: f, index: -1} }

// Next returns the earliest time that a timer is set to, which may be in the past; false: no timer
// is set.
func (c *Fake) Next() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.set) == 0 {
		return at, false
	}
	return c.set[0].at, true
}

// Advance moves the clock to a time, and calls the due functions one after the other, by time and
// then in the order in which they were set. Each function sees its own due time. With a time in the
// past it only calls the functions that are due now. It must not be called concurrently, nor from
// the function of a timer.
func (c *Fake) Advance(to time.Time) {
	to = to.Round(0)
	if now := c.Now(); to.Before(now) {
		to = now
	}
	for {
		f := c.due(to)
		if f == nil {
			return
		}
		f()
	}
}

// due moves the clock to the next due timer and removes it; nil: none is left, and the clock is at
// its target.
func (c *Fake) due(to time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.set) == 0 || c.set[0].at.After(to) {
		c.now = to
		return nil
	}
	t := heap.Pop(&c.set).(*fakeTimer)
	if t.at.After(c.now) {
		c.now = t.at
	}
	return t.f
}

// fakeTimer is a timer of a Fake.
type fakeTimer struct {
	clock *Fake
	f     func()
	at    time.Time
	order uint64
	index int // in Fake.set; -1: it is not set
}

// Set implements Timer.
func (t *fakeTimer) Set(at time.Time) {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	t.disarm()
	c.last++
	t.at, t.order = at.Round(0), c.last
	heap.Push(&c.set, t)
}

// Stop implements Timer.
func (t *fakeTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.disarm()
}

func (t *fakeTimer) disarm() {
	if t.index >= 0 {
		heap.Remove(&t.clock.set, t.index)
	}
}

// fakeTimers is a heap, the earliest first.
type fakeTimers []*fakeTimer

func (h fakeTimers) Len() int { return len(h) }

func (h fakeTimers) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].order < h[j].order
}

// Swap implements heap.Interface.
func (h fakeTimers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *fakeTimers) Push(x any) {
	t := x.(*fakeTimer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *fakeTimers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
