package timer_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/test/leaks"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The real clock, in a bubble: a timer calls once at its time, only the last time that was set
// counts, and a stopped one does not call.
func TestReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := timer.Real()
		begin := clock.Now()
		var calls []time.Duration
		one := clock.NewTimer(func() { calls = append(calls, clock.Now().Sub(begin)) })
		step := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		step(time.Hour) // not set
		one.Set(begin.Add(3 * time.Hour))
		one.Set(begin.Add(2 * time.Hour))
		step(4 * time.Hour)
		one.Set(begin) // in the past
		step(0)
		one.Set(begin.Add(6 * time.Hour))
		one.Stop()
		step(4 * time.Hour)
		if want := []time.Duration{2 * time.Hour, 5 * time.Hour}; !slices.Equal(calls, want) {
			t.Errorf("called at %v, want %v", calls, want)
		}
	})
}

// The fake does the same when it is advanced. The timers on its way are called in order, each at
// its time, including those set by a call.
func TestFake(t *testing.T) {
	clock := timer.NewFake(start)
	var calls []string
	call := func(name string) { calls = append(calls, fmt.Sprint(name, " ", clock.Now().Sub(start))) }
	var again timer.Timer
	a, b, c := clock.NewTimer(func() { call("a"); again.Set(clock.Now().Add(time.Minute)) }), clock.NewTimer(func() { call("b") }), clock.NewTimer(func() { call("c") })
	again = clock.NewTimer(func() { call("again") })
	if at, ok := clock.Next(); ok {
		t.Errorf("nothing is set, and next is %v", at)
	}
	b.Set(start.Add(2 * time.Minute))
	c.Set(start.Add(time.Minute))
	a.Set(start.Add(time.Minute)) // after c
	stopped := clock.NewTimer(func() { call("stopped") })
	stopped.Set(start.Add(time.Second))
	stopped.Stop()
	stopped.Stop()
	if at, ok := clock.Next(); !ok || at != start.Add(time.Minute) {
		t.Errorf("next %v %v", at, ok)
	}
	clock.Advance(start.Add(59 * time.Second))
	if len(calls) > 0 {
		t.Errorf("too early: %v", calls)
	}
	clock.Advance(start.Add(time.Hour))
	if want := []string{"c 1m0s", "a 1m0s", "b 2m0s", "again 2m0s"}; !slices.Equal(calls, want) {
		t.Errorf("called %q, want %q", calls, want)
	}
	if now := clock.Now(); now != start.Add(time.Hour) {
		t.Errorf("now %v", now)
	}
}

// A timer set to a time in the past waits for Advance to any time, and the clock never goes back.
func TestFakeOver(t *testing.T) {
	clock := timer.NewFake(start)
	called := 0
	var lock sync.Mutex
	one := clock.NewTimer(func() {
		lock.Lock()
		defer lock.Unlock()
		called++
	})
	lock.Lock()
	one.Set(start.Add(-time.Hour))
	lock.Unlock()
	if at, ok := clock.Next(); !ok || !at.Before(start) || called != 0 {
		t.Errorf("next %v %v, called %d", at, ok, called)
	}
	clock.Advance(start.Add(-2 * time.Hour))
	if called != 1 || !clock.Now().Equal(start) {
		t.Errorf("called %d times, now %v", called, clock.Now())
	}
}

// In any sequence of Set and Stop exactly the due timers are called, in order, each at its time.
func TestFakeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := timer.NewFake(start)
		due := map[int]time.Duration{}
		now, calls := time.Duration(0), []int(nil)
		var timers []timer.Timer
		for i := range 5 {
			timers = append(timers, clock.NewTimer(func() {
				if at := clock.Now().Sub(start); at != max(due[i], now) {
					t.Fatalf("timer %d is called at %v, due at %v, since %v", i, at, due[i], now)
				}
				calls = append(calls, i)
			}))
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				i, at := rapid.IntRange(0, 4).Draw(t, "timer"), time.Duration(rapid.IntRange(-3, 9).Draw(t, "in"))+now
				timers[i].Set(start.Add(at))
				due[i] = at
			},
			"stop": func(t *rapid.T) {
				i := rapid.IntRange(0, 4).Draw(t, "timer")
				timers[i].Stop()
				delete(due, i)
			},
			"advance": func(t *rapid.T) {
				to := now + time.Duration(rapid.IntRange(0, 5).Draw(t, "by"))
				calls = calls[:0]
				clock.Advance(start.Add(to))
				if !slices.IsSortedFunc(calls, func(a, b int) int { return int(due[a] - due[b]) }) {
					t.Fatalf("order %v of %v", calls, due)
				}
				for i, at := range due {
					if (at <= to) != slices.Contains(calls, i) {
						t.Fatalf("at %v: timer %d is due at %v; called %v", to, i, at, calls)
					}
					if at <= to {
						delete(due, i)
					}
				}
				now = to
			},
		})
	})
}

// A clock that is ten times as fast calls after a tenth of the time, and then shows the time that
// was set.
func TestScaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begin time.Time
		for _, speed := range []float64{10, 1, 0.5, 1e9} {
			clock := timer.Scaled(start, speed)
			if now := clock.Now(); !now.Equal(start) {
				t.Errorf("begins at %v", now)
			}
			begin = time.Now()
			called := make(chan struct{})
			one := clock.NewTimer(func() { close(called) })
			one.Set(start.Add(time.Hour))
			<-called
			want := time.Duration(float64(time.Hour) / speed)
			if took := time.Since(begin); took < want || took > want+time.Microsecond || clock.Now().Before(start.Add(time.Hour)) {
				t.Errorf("at speed %v it took %v, to %v", speed, took, clock.Now())
			}
			one.Set(start.Add(1 << 62)) // never reached
			one.Stop()
		}
	})
}

func TestMain(m *testing.M) { leaks.Main(m) }

// onlyNow is a clock without timers.
type onlyNow struct{ timer.Clock }

// NewTimer has another type than that of a Clock.
func (onlyNow) NewTimer() {}

// TestOf shows that a clock of others is used, with timers of the machine, and a Clock as it is.
func TestOf(t *testing.T) {
	fake := timer.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if got := timer.Of(fake); got != timer.Clock(fake) {
		t.Errorf("a Clock became a %T", got)
	}
	if got := timer.Of(nil); got != timer.Real() {
		t.Errorf("no clock became a %T", got)
	}
	synctest.Test(t, func(t *testing.T) {
		clock := timer.Of(onlyNow{fake})
		if !clock.Now().Equal(fake.Now()) {
			t.Errorf("it shows %v, want %v", clock.Now(), fake.Now())
		}
		began := time.Now()
		called := make(chan struct{})
		clock.NewTimer(func() { close(called) }).Set(fake.Now().Add(time.Minute))
		<-called
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("the timer waited %v, want a minute", waited)
		}
	})
}
