package queue

import (
	"container/heap"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// restLength is a quiet period for which a million keys wait.
const (
	restLength = time.Minute
	restMany   = 1_000_000
)

type restNode struct {
	timer.Node

	wheel *timer.Wheel
	n     *int
}

func (r *restNode) Due(n *timer.Node) {
	*r.n++
	r.wheel.Set(n, r.wheel.Now()+restLength, r)
}

// BenchmarkResting measures the cost of the start and the end of a quiet period of one key among a
// million: with the heap of the route, and with the wheel of the pending conditions.
func BenchmarkResting(b *testing.B) {
	start := time.Now()
	b.Run("heap", func(b *testing.B) {
		var q Queue
		slots := make([]Lane, restMany)
		for i := range slots {
			slots[i].until = start.Add(restLength / restMany * time.Duration(i))
			q.Lanes.rest(&slots[i])
		}
		b.ReportAllocs()
		for now := start; b.Loop(); {
			now = now.Add(restLength / restMany)
			for !q.Lanes.delayed[0].at.After(now) {
				s := heap.Pop(&q.Lanes.delayed).(*Lane)
				q.Lanes.wakeUp(s, now)
				s.until = now.Add(restLength)
				q.Lanes.rest(s)
			}
		}
	})
	b.Run("wheel", func(b *testing.B) {
		clock, n := timer.NewFake(start), 0
		w := timer.NewWheel(clock)
		defer w.Close()
		nodes := make([]restNode, restMany)
		for i := range nodes {
			nodes[i].wheel, nodes[i].n = w, &n
			w.Set(&nodes[i].Node, restLength/restMany*time.Duration(i), &nodes[i])
		}
		b.ReportAllocs()
		for b.Loop() {
			clock.Advance(clock.Now().Add(restLength / restMany))
		}
	})
	b.Run("heap, another delta comes", func(b *testing.B) {
		q := Queue{Lanes: Lanes{window: Window{Quiet: restLength, Max: 10 * restLength}}}
		slots := make([]Lane, restMany)
		for i := range slots {
			slots[i].until = start.Add(restLength + restLength/restMany*time.Duration(i))
			q.Lanes.rest(&slots[i])
		}
		b.ReportAllocs()
		now := start
		for i := 0; b.Loop(); i++ {
			now = now.Add(time.Nanosecond)
			q.Lanes.extend(&slots[i*7919%restMany], resting, now)
		}
	})
	b.Run("wheel, another delta comes", func(b *testing.B) {
		w, n := timer.NewWheel(timer.Real()), 0
		defer w.Close()
		nodes := make([]restNode, restMany)
		for i := range nodes {
			nodes[i].wheel, nodes[i].n = w, &n
			w.Set(&nodes[i].Node, w.Now()+time.Hour, &nodes[i])
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			o := &nodes[i*7919%restMany]
			w.Set(&o.Node, w.Now()+time.Hour, o)
		}
	})
}
