package timer_test

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// one is the owner of a timer.
type one struct {
	timer.Node

	name int
	due  func(o *one)
}

func (o *one) Due(*timer.Node) { o.due(o) }

type call struct {
	name int
	at   time.Duration
}

// TestWheel: in any sequence of Set and Stop, also from within calls, each timer is called once at
// the last time that was set, and at no other, near or in a hundred years.
func TestWheel(t *testing.T) {
	// Guarantee: entered
	rapid.Check(t, func(rt *rapid.T) {
		clock := timer.NewFake(start)
		w := timer.NewWheel(clock)
		var calls, want []call
		set, again, expected := map[int]time.Duration{}, map[int]int{}, map[int]int{}
		var all []*one
		for i := range rapid.IntRange(1, 20).Draw(rt, "timers") {
			all = append(all, &one{name: i, due: func(o *one) {
				calls = append(calls, call{o.name, w.Now()})
				if again[o.name]++; again[o.name]%3 == 0 {
					w.Set(&o.Node, w.Now()+time.Duration(1+o.name)*time.Second, o)
				}
			}})
		}
		expect := func(to time.Duration) {
			for {
				next := call{-1, to}
				for name, at := range set {
					if at = max(at, w.Now()); at <= to && (next.name < 0 || at < next.at || at == next.at && name < next.name) {
						next = call{name, at}
					}
				}
				if next.name < 0 {
					return
				}
				delete(set, next.name)
				want = append(want, next)
				if expected[next.name]++; expected[next.name]%3 == 0 {
					set[next.name] = next.at + time.Duration(1+next.name)*time.Second
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			o := all[rapid.IntRange(0, len(all)-1).Draw(rt, "which")]
			length := time.Duration(rapid.SampledFrom([]int64{1, 1e6, 1e9, 60e9, 3600e9, 86400e9, 86400e9 * 365 * 100}).Draw(rt, "unit"))
			at := w.Now() + length*time.Duration(rapid.IntRange(-1, 2).Draw(rt, "n"))
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				w.Set(&o.Node, at, o)
				set[o.name] = max(at, 0)
			case 2:
				w.Stop(&o.Node)
				delete(set, o.name)
			default:
				calls, want = nil, nil
				expect(max(at, w.Now()))
				clock.Advance(start.Add(at))
				byTime := func(a, b call) int { return cmp.Or(cmp.Compare(a.at, b.at), a.name-b.name) }
				slices.SortStableFunc(calls, byTime)
				if slices.SortStableFunc(want, byTime); !slices.Equal(calls, want) {
					rt.Fatalf("called %v, want %v", calls, want)
				}
			}
			if w.Len() != len(set) {
				rt.Fatalf("%d are set, want %d", w.Len(), len(set))
			}
		}
	})
}

// The real clock, in a bubble: the wall clock has no effect, a stopped timer is not called, and
// none after Close.
func TestWheelReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timer.NewWheel(timer.Real())
		var mu sync.Mutex
		var calls []call
		due := func(o *one) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, call{o.name, w.Now()})
		}
		timers := make([]*one, 5)
		for i := range timers {
			timers[i] = &one{name: i, due: due}
		}
		for i, at := range []time.Duration{3 * time.Hour, time.Minute, time.Minute, 2 * time.Hour, 5 * time.Hour} {
			w.Set(&timers[i].Node, at, timers[i])
		}
		w.Stop(&timers[3].Node)
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		w.Close()
		time.Sleep(4 * time.Hour)
		w.Set(&timers[3].Node, 0, timers[3])
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if want := []call{{1, time.Minute}, {2, time.Minute}, {0, 3 * time.Hour}}; !slices.Equal(calls, want) {
			t.Errorf("called %v, want %v", calls, want)
		}
	})
}

// TestWheelTogether: timers that many goroutines set and stop are either called or stopped, and
// none is lost.
func TestWheelTogether(t *testing.T) {
	w := timer.NewWheel(timer.Real())
	defer w.Close()
	var users sync.WaitGroup
	for g := range 8 {
		users.Go(func() {
			for i := range 500 {
				done := make(chan struct{})
				o := &one{name: i, due: func(*one) { close(done) }}
				w.Set(&o.Node, w.Now()+time.Duration((i*g)%7)*300*time.Microsecond, o)
				if i%3 == 0 {
					w.Stop(&o.Node)
					continue
				}
				<-done
			}
		})
	}
	users.Wait()
	if n := w.Len(); n != 0 {
		t.Errorf("%d are set", n)
	}
}
