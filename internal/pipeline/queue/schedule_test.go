package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/timer"
)

func TestPlan(t *testing.T) {
	now := time.Unix(1000, 0)
	down := func(probe time.Time) queue.Sinks { return queue.Sinks{Down: true, Probe: probe} }
	for name, c := range map[string]struct {
		view queue.View
		take int
	}{
		"nothing is ready":            {queue.View{Size: 8}, 0},
		"the route is paused":         {queue.View{Stopped: true, Ready: 8, Size: 8}, 0},
		"a batch":                     {queue.View{Ready: 9, Size: 8}, 8},
		"less, and it does not wait":  {queue.View{Ready: 1, Size: 8}, 8},
		"less, and it waits":          {queue.View{Ready: 7, Size: 8, Wait: time.Second}, 0},
		"less, and it always waits":   {queue.View{Ready: 7, Size: 8, Wait: time.Second, Steady: true}, 0},
		"no less, and it waits":       {queue.View{Ready: 8, Size: 8, Wait: time.Second}, 8},
		"all sinks are down":          {queue.View{Ready: 9, Size: 8, Sinks: down(now.Add(1))}, 0},
		"a sink is probed":            {queue.View{Ready: 9, Size: 8, Sinks: down(now)}, 1},
		"a probe waits for no others": {queue.View{Ready: 1, Size: 8, Wait: time.Second, Sinks: down(now)}, 1},
	} {
		c.view.Now = now
		l := queue.NewLeader(timer.NewFake(now))
		l.Taken(now, 8)
		if p := l.Plan(&c.view); p.Take != c.take {
			t.Errorf("%s: takes %d, want %d", name, p.Take, c.take)
		}
	}
}

// TestRareDeltasDoNotWait: a delta is taken at once if fewer than three were taken within the wait
// before it.
func TestRareDeltasDoNotWait(t *testing.T) {
	const wait = 10 * time.Millisecond
	for name, c := range map[string]struct {
		taken []int // the numbers of deltas taken, one a millisecond, until the delta comes
		until int   // when it is taken, in milliseconds after the first
	}{
		"none were taken":              {nil, 0},
		"one was taken":                {[]int{1}, 1},
		"two were taken":               {[]int{1, 1}, 2},
		"two were taken together":      {[]int{2}, 1},
		"three were taken":             {[]int{1, 1, 1}, 10},
		"three were taken together":    {[]int{3}, 10},
		"a batch":                      {[]int{8}, 10},
		"others after a batch":         {[]int{8, 1, 1}, 10},
		"it counts the last three":     {[]int{1, 1, 1, 1, 1}, 12},
		"an empty batch":               {[]int{0}, 10},
		"an empty batch after another": {[]int{3, 0}, 11},
	} {
		clock := timer.NewFake(time.Unix(1000, 0))
		begun := clock.Now()
		l := queue.NewLeader(clock)
		for _, n := range c.taken {
			l.Taken(clock.Now(), n)
			clock.Advance(clock.Now().Add(time.Millisecond))
		}
		view := func() *queue.View { return &queue.View{Now: clock.Now(), Ready: 1, Size: 8, Wait: wait} }
		for p := l.Plan(view()); p.Take == 0; p = l.Plan(view()) {
			l.Park(p)
			due, ok := clock.Next()
			if !ok || !due.After(clock.Now()) || !l.Idle(view()) {
				t.Fatalf("%s: waits for ever", name)
			}
			clock.Advance(due)
		}
		if took := clock.Now().Sub(begun); took != time.Duration(c.until)*time.Millisecond {
			t.Errorf("%s: the next is taken after %v, want %dms", name, took, c.until)
		}
	}
}

// TestGateOpened: deltas that waited for the disk do not wait again.
func TestGateOpened(t *testing.T) {
	clock := timer.NewFake(time.Unix(1000, 0))
	l := queue.NewLeader(clock)
	l.Taken(clock.Now(), 0)
	view := &queue.View{Now: clock.Now(), Ready: 1, Size: 8, Wait: time.Minute}
	if p := l.Plan(view); p.Take != 0 {
		t.Errorf("takes %d, and the last batch was empty", p.Take)
	}
	l.GateOpened()
	if p := l.Plan(view); p.Take != 8 {
		t.Error("waits after the gate was opened")
	}
}

// TestSteadyBatchWaits: a steady incomplete batch waits from its first delta on, however often the
// leader plans in the meantime.
func TestSteadyBatchWaits(t *testing.T) {
	clock := timer.NewFake(time.Unix(1000, 0))
	l := queue.NewLeader(clock)
	view := func(ready int) *queue.View {
		return &queue.View{Now: clock.Now(), Ready: ready, Size: 8, Wait: time.Minute, Steady: true}
	}
	for ready := range 3 {
		p := l.Plan(view(ready + 1))
		if p.Take != 0 {
			t.Fatalf("takes %d of %d", p.Take, ready+1)
		}
		l.Park(p)
		if !l.Waits(clock.Now()) || !l.Idle(view(ready+1)) {
			t.Error("does not wait")
		}
		clock.Advance(clock.Now().Add(10 * time.Second))
	}
	clock.Advance(clock.Now().Add(30 * time.Second))
	l.Wait(t.Context(), nil, nil) // the timer has fired
	if l.Waits(clock.Now()) || l.Idle(view(3)) {
		t.Error("waits after its time")
	}
	if p := l.Plan(view(3)); p.Take != 8 {
		t.Errorf("takes %d", p.Take)
	}
	l.Taken(clock.Now(), 3)
	if p := l.Plan(view(1)); p.Take != 0 {
		t.Error("the next batch does not wait anew")
	}
}

// TestSignal: the leader is woken by a signal, and when as many deltas are ready as it waits for.
func TestSignal(t *testing.T) {
	l := queue.NewLeader(timer.NewFake(time.Unix(1000, 0)))
	if !l.Acquire(t.Context()) {
		t.Fatal("no turn")
	}
	defer l.Release()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if l.Acquire(ended) {
		t.Error("two leaders")
	}
	l.Park(l.Plan(&queue.View{Size: 8}))
	l.Changed(1) // it waits for one
	l.Wait(t.Context(), nil, nil)
	l.Taken(time.Unix(1000, 0), 8)
	l.Park(l.Plan(&queue.View{Now: time.Unix(1000, 0), Ready: 1, Size: 8, Wait: time.Minute}))
	l.Changed(7)
	if !l.Waits(time.Unix(1000, 0)) {
		t.Error("woken by fewer than it waits for")
	}
	l.Changed(8)
	l.Wait(t.Context(), nil, nil)
}
