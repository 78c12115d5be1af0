package schedule_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/internal/pipeline/schedule"
	"github.com/deltarouter/deltarouter/internal/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlan(t *testing.T) {
	now := time.Unix(1000, 0)
	down := func(probe time.Time) schedule.Sinks { return schedule.Sinks{Down: true, Probe: probe} }
	for name, c := range map[string]struct {
		view schedule.View
		take int
	}{
		"nothing is ready":            {schedule.View{Size: 8}, 0},
		"the route is paused":         {schedule.View{Stopped: true, Ready: 8, Size: 8}, 0},
		"a batch":                     {schedule.View{Ready: 9, Size: 8}, 8},
		"less, and it does not wait":  {schedule.View{Ready: 1, Size: 8}, 8},
		"less, and it waits":          {schedule.View{Ready: 7, Size: 8, Wait: time.Second}, 0},
		"no less, and it waits":       {schedule.View{Ready: 8, Size: 8, Wait: time.Second}, 8},
		"all sinks are down":          {schedule.View{Ready: 9, Size: 8, Sinks: down(now.Add(1))}, 0},
		"a sink is probed":            {schedule.View{Ready: 9, Size: 8, Sinks: down(now)}, 1},
		"a probe waits for no others": {schedule.View{Ready: 1, Size: 8, Wait: time.Second, Sinks: down(now)}, 1},
	} {
		c.view.Now = now
		if p := schedule.NewLeader(timer.NewFake(now)).Plan(&c.view); p.Take != c.take {
			t.Errorf("%s: takes %d, want %d", name, p.Take, c.take)
		}
	}
}

// TestBatchWaits: an incomplete batch waits from its first delta on, however often the leader plans
// in the meantime.
func TestBatchWaits(t *testing.T) {
	clock := timer.NewFake(time.Unix(1000, 0))
	l := schedule.NewLeader(clock)
	view := func(ready int) *schedule.View {
		return &schedule.View{Now: clock.Now(), Ready: ready, Size: 8, Wait: time.Minute}
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
	l.Taken()
	if p := l.Plan(view(1)); p.Take != 0 {
		t.Error("the next batch does not wait anew")
	}
}

// TestSignal: the leader is woken by a signal, and when as many deltas are ready as it waits for.
func TestSignal(t *testing.T) {
	l := schedule.NewLeader(timer.NewFake(time.Unix(1000, 0)))
	if !l.Acquire(t.Context()) {
		t.Fatal("no turn")
	}
	defer l.Release()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if l.Acquire(ended) {
		t.Error("two leaders")
	}
	l.Park(l.Plan(&schedule.View{Size: 8}))
	l.Changed(1) // it waits for one
	l.Wait(t.Context(), nil, nil)
	l.Park(l.Plan(&schedule.View{Now: time.Unix(1000, 0), Ready: 1, Size: 8, Wait: time.Minute}))
	l.Changed(7)
	if !l.Waits(time.Unix(1000, 0)) {
		t.Error("woken by fewer than it waits for")
	}
	l.Changed(8)
	l.Wait(t.Context(), nil, nil)
}
