package queue

import (
	"container/heap"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// quietLength is a quiet period for which a million keys wait.
const (
	quietLength = time.Minute
	laneCount   = 1_000_000
)

type debounceNode struct {
	timer.Node

	wheel *timer.Wheel
	n     *int
}

func (r *debounceNode) Due(n *timer.Node) {
	*r.n++
	r.wheel.Set(n, r.wheel.Now()+quietLength, r)
}

// BenchmarkDebouncing measures the cost of the start and the end of a quiet period of one key among
// a million: with the heap of the route, and with the wheel of the pending conditions.
func BenchmarkDebouncing(b *testing.B) {
	start := time.Now()
	b.Run("heap", func(b *testing.B) {
		var q Queue
		slots := make([]Lane, laneCount)
		for i := range slots {
			slots[i].until = start.Add(quietLength / laneCount * time.Duration(i))
			q.Lanes.debounce(&slots[i])
		}
		b.ReportAllocs()
		for now := start; b.Loop(); {
			now = now.Add(quietLength / laneCount)
			for !q.Lanes.delayed[0].at.After(now) {
				s := heap.Pop(&q.Lanes.delayed).(*Lane)
				q.Lanes.wakeUp(s, now)
				s.until = now.Add(quietLength)
				q.Lanes.debounce(s)
			}
		}
	})
	b.Run("wheel", func(b *testing.B) {
		clock, n := timer.NewFake(start), 0
		w := timer.NewWheel(clock)
		defer w.Close()
		nodes := make([]debounceNode, laneCount)
		for i := range nodes {
			nodes[i].wheel, nodes[i].n = w, &n
			w.Set(&nodes[i].Node, quietLength/laneCount*time.Duration(i), &nodes[i])
		}
		b.ReportAllocs()
		for b.Loop() {
			clock.Advance(clock.Now().Add(quietLength / laneCount))
		}
	})
	b.Run("heap, another delta comes", func(b *testing.B) {
		q := Queue{Lanes: Lanes{window: Window{Quiet: quietLength, Max: 10 * quietLength}}}
		slots := make([]Lane, laneCount)
		for i := range slots {
			slots[i].until = start.Add(quietLength + quietLength/laneCount*time.Duration(i))
			q.Lanes.debounce(&slots[i])
		}
		b.ReportAllocs()
		now := start
		for i := 0; b.Loop(); i++ {
			now = now.Add(time.Nanosecond)
			q.Lanes.extend(&slots[i*7919%laneCount], debouncing, now)
		}
	})
	b.Run("wheel, another delta comes", func(b *testing.B) {
		w, n := timer.NewWheel(timer.Real()), 0
		defer w.Close()
		nodes := make([]debounceNode, laneCount)
		for i := range nodes {
			nodes[i].wheel, nodes[i].n = w, &n
			w.Set(&nodes[i].Node, w.Now()+time.Hour, &nodes[i])
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			o := &nodes[i*7919%laneCount]
			w.Set(&o.Node, w.Now()+time.Hour, o)
		}
	})
}
