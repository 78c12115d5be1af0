package timer_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// heapNode is the counterpart of timer.Node on a heap.
type heapNode struct {
	index int // from 1; 0: it is not set
	at    time.Duration
	owner timer.Owner
}

// heapTimers is the heap that the wheel is compared with, the best for many timers: with four
// children for each slot, and the times in the slots.
type heapTimers struct {
	clock timer.Clock
	timer timer.Timer

	mu       sync.Mutex
	slots    []heapSlot
	expiring bool
}

type heapSlot struct {
	at   time.Duration
	node *heapNode
}

func (h *heapTimers) set(n *heapNode, at time.Duration, owner timer.Owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.at, n.owner = at, owner
	if n.index == 0 {
		h.slots = append(h.slots, heapSlot{})
		h.up(len(h.slots)-1, heapSlot{at, n})
	} else {
		h.place(n.index-1, heapSlot{at, n})
	}
	if n.index == 1 && !h.expiring {
		h.timer.Set(start.Add(at))
	}
}

func (h *heapTimers) stop(n *heapNode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(n)
}

func (h *heapTimers) remove(n *heapNode) {
	if n.index == 0 {
		return
	}
	i, last := n.index-1, len(h.slots)-1
	moved := h.slots[last]
	h.slots[last] = heapSlot{}
	h.slots = h.slots[:last]
	n.index = 0
	if i < last {
		h.place(i, moved)
	}
}

// expire calls the owners of the due timers.
func (h *heapTimers) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now().Sub(start)
	h.expiring = true
	for len(h.slots) > 0 && h.slots[0].at <= now {
		n := h.slots[0].node
		h.remove(n)
		h.mu.Unlock()
		n.owner.Due(nil)
		h.mu.Lock()
	}
	if h.expiring = false; len(h.slots) > 0 {
		h.timer.Set(start.Add(h.slots[0].at))
	}
}

func (h *heapTimers) place(i int, s heapSlot) {
	if i > 0 && s.at < h.slots[(i-1)/4].at {
		h.up(i, s)
	} else {
		h.down(i, s)
	}
}

func (h *heapTimers) up(i int, s heapSlot) {
	for i > 0 {
		parent := (i - 1) / 4
		if h.slots[parent].at <= s.at {
			break
		}
		h.put(i, h.slots[parent])
		i = parent
	}
	h.put(i, s)
}

func (h *heapTimers) down(i int, s heapSlot) {
	for {
		first := 4*i + 1
		if first >= len(h.slots) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h.slots)); c++ {
			if h.slots[c].at < h.slots[least].at {
				least = c
			}
		}
		if h.slots[least].at >= s.at {
			break
		}
		h.put(i, h.slots[least])
		i = least
	}
	h.put(i, s)
}

func (h *heapTimers) put(i int, s heapSlot) {
	h.slots[i] = s
	s.node.index = i + 1
}

type nobody struct{}

func (nobody) Due(*timer.Node) {}

// subject is one of the two compared implementations. Times are since the beginning.
type subject struct {
	set   func(i int, at time.Duration)
	stop  func(i int)
	clock *timer.Fake
}

func wheelOf(n int) subject {
	clock := timer.NewFake(start)
	w, nodes := timer.NewWheel(clock), make([]timer.Node, n)
	return subject{
		func(i int, at time.Duration) { w.Set(&nodes[i], at, nobody{}) },
		func(i int) { w.Stop(&nodes[i]) },
		clock,
	}
}

func heapOf(n int) subject {
	clock := timer.NewFake(start)
	h, nodes := &heapTimers{clock: clock}, make([]heapNode, n)
	h.timer = clock.NewTimer(h.expire)
	return subject{
		func(i int, at time.Duration) { h.set(&nodes[i], at, nobody{}) },
		func(i int) { h.stop(&nodes[i]) },
		clock,
	}
}

// BenchmarkTimers compares the wheel with a heap. Each round of an operation runs it for all timers
// of both, one after the other, and the fastest round of each counts. ratio is heap by wheel.
func BenchmarkTimers(b *testing.B) {
	const hour = time.Hour
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		random := rand.New(rand.NewPCG(1, 2))
		order, times := random.Perm(n), make([]time.Duration, n)
		for i := range times {
			times[i] = time.Minute + time.Duration(random.Int64N(int64(hour)))
		}
		fill := func(s subject, at func(i int) time.Duration) {
			for i := range n {
				s.set(i, at(i))
			}
		}
		alike := func(i int) time.Duration { return hour + time.Duration(i)*hour/time.Duration(n) }
		mixed := func(i int) time.Duration { return times[i] }
		none := func(subject) {}
		for _, tt := range []struct {
			name        string
			before, run func(s subject)
		}{
			{"arm/alike", none, func(s subject) { fill(s, alike) }},
			{"arm/mixed", none, func(s subject) { fill(s, mixed) }},
			{"rearm/alike", func(s subject) { fill(s, alike) }, func(s subject) {
				for i, o := range order {
					s.set(o, hour+alike(i))
				}
			}},
			{"rearm/mixed", func(s subject) { fill(s, mixed) }, func(s subject) {
				for i, o := range order {
					s.set(o, times[i])
				}
			}},
			{"stop", func(s subject) { fill(s, mixed) }, func(s subject) {
				for _, o := range order {
					s.stop(o)
				}
			}},
			{"fire/alike", func(s subject) { fill(s, alike) }, func(s subject) { s.clock.Advance(start.Add(3 * hour)) }},
			{"fire/mixed", func(s subject) { fill(s, mixed) }, func(s subject) { s.clock.Advance(start.Add(3 * hour)) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", tt.name, n), func(b *testing.B) {
				least := [2]time.Duration{time.Hour, time.Hour}
				for b.Loop() {
					for i, make := range []func(int) subject{wheelOf, heapOf} {
						s := make(n)
						tt.before(s)
						began := time.Now()
						tt.run(s)
						least[i] = min(least[i], time.Since(began))
					}
				}
				b.ReportMetric(float64(least[0])/float64(n), "wheel-ns")
				b.ReportMetric(float64(least[1])/float64(n), "heap-ns")
				b.ReportMetric(float64(least[1])/float64(least[0]), "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
