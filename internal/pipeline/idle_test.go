package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// passTo advances a fake clock to a time, from one due time to the next.
func (b *harness) passTo(clock *timer.Fake, to time.Time) {
	b.t.Helper()
	for {
		if err := b.Idle(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		next, ok := clock.Next()
		if !ok || next.After(to) {
			clock.Advance(to)
			return
		}
		clock.Advance(next)
	}
}

// An incomplete batch, the backoff of a delta and of a sink, and the age of a delta use the clock
// of the configuration.
func TestClock(t *testing.T) {
	clock := timer.NewFake(epoch)
	var mu sync.Mutex
	var came []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		came = append(came, fmt.Sprint(clock.Now().Sub(epoch), " ", what))
	}
	tries, down := 0, true
	out := &recordingSink{before: func(context.Context) { note("write") }}
	slow := &recordingSink{refuse: func(event.Event) error {
		note("probe")
		if down {
			return errDown
		}
		return nil
	}}
	retry := handleEach(func(d *event.Delta) plugins.Result {
		note("handle")
		if tries++; tries < 3 {
			return plugins.Result{Verdict: plugins.Retry, Err: errors.New("not yet")}
		}
		return ok(d)
	})
	hour := spec.Retry{Attempts: 3, Backoff: time.Hour, Max: 3 * time.Hour, MaxAge: 9 * time.Hour, Exact: true}
	b := openAs(t, pipeline.Config{Clock: clock},
		spec.Settings{Sources: []string{"pods"}, Handler: retry, Sinks: []spec.NamedSink{{Name: "out", Sink: out}}, Retry: hour, Batch: spec.Batch{Size: 8, Wait: time.Minute}},
		spec.Settings{Sources: []string{"others"}, Sinks: []spec.NamedSink{{Name: "slow", Sink: slow}}, Retry: hour},
	)
	b.Start(t.Context())
	first := delta(t, event.Added, "a", 0, 1)
	first.Seen = epoch
	b.admit(first)
	b.passTo(clock, epoch.Add(10*time.Hour))
	if want := []string{"0s handle", "1h0m0s handle", "3h0m0s handle", "3h0m0s write"}; !slices.Equal(came, want) {
		t.Errorf("came %q, want %q", came, want)
	}
	came = nil
	other := delta(t, event.Added, "b", 0, 2)
	other.Source, other.Seen = "others", clock.Now()
	b.admit(other)
	b.passTo(clock, epoch.Add(100*time.Hour))
	// After three attempts the breaker of the sink is open, and the delta becomes a dead letter once
	// it is older than nine hours.
	want := []string{"10h0m0s probe", "11h0m0s probe", "13h0m0s probe", "16h0m0s probe", "19h0m0s probe", "22h0m0s probe"}
	if !slices.Equal(came, want) {
		t.Errorf("came %q, want %q", came, want)
	}
	if got := b.letters.got(); !slices.Equal(got, []string{"b@2 slow"}) || b.Pending("route1") != 0 {
		t.Errorf("dead letters %v, pending %d", got, b.Pending("route1"))
	}
}

// A route with work to do is not idle; one that waits for a look-up, is paused, or is done is idle.
func TestIdle(t *testing.T) {
	clock := timer.NewFake(epoch)
	ready, held := make(chan struct{}), make(chan struct{})
	fail := handleEach(func(*event.Delta) plugins.Result {
		return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errors.New("no"))}
	})
	b := openAs(t, pipeline.Config{Clock: clock},
		spec.Settings{Sources: []string{"pods"}, Ready: ready, Sinks: []spec.NamedSink{{Name: "out", Sink: &recordingSink{}}}},
		spec.Settings{Sources: []string{"paused"}, Handler: fail, OnFailure: spec.Pause, Sinks: []spec.NamedSink{{Name: "out", Sink: &recordingSink{}}}},
		spec.Settings{Sources: []string{"held"}, Sinks: []spec.NamedSink{{Name: "held", Sink: &recordingSink{before: func(context.Context) { <-held }}}}, Batch: spec.Batch{Size: 1}, Concurrency: 2},
	)
	b.Start(t.Context())
	for _, source := range []string{"pods", "paused"} {
		d := delta(t, event.Added, "a", 0, 1)
		d.Source = source
		b.admit(d)
	}
	b.passTo(clock, epoch.Add(time.Hour))
	if got := []int{b.Pending("route0"), b.Pending("route1")}; !slices.Equal(got, []int{1, 1}) {
		t.Errorf("pending %v", got)
	}
	close(ready)
	b.passTo(clock, epoch.Add(2*time.Hour))
	if pending := b.Pending("route0"); pending != 0 {
		t.Errorf("pending %d when ready", pending)
	}
	d := delta(t, event.Added, "a", 0, 1)
	d.Source = "held"
	b.admit(d)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Idle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a route that writes is idle: %v", err)
	}
	close(held)
	b.passTo(clock, epoch.Add(2*time.Hour))
	if pending := b.Pending("route2"); pending != 0 {
		t.Errorf("pending %d when it is idle", pending)
	}
}

// scenario is the input of a route: the changes of the objects, and the faults.
type scenario struct {
	route  spec.Settings
	deltas []scenarioDelta
	// by object and version: the verdicts of the first attempts
	handler map[string][]plugins.Verdict
	refused map[string]int // how often a sink refuses an object
}

type scenarioDelta struct {
	after time.Duration
	name  string
}

func drawScenario(t *rapid.T) scenario {
	s := scenario{handler: map[string][]plugins.Verdict{}, refused: map[string]int{}}
	second := func(label string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Second
	}
	s.route = spec.Settings{
		Sources: []string{"pods"},
		Batch:   spec.Batch{Size: rapid.IntRange(1, 4).Draw(t, "batch"), Wait: second("wait", 5)},
		Retry: spec.Retry{
			Attempts: rapid.IntRange(0, 3).Draw(t, "attempts"), Backoff: time.Second, Max: second("max", 8), MaxAge: time.Minute, Exact: true,
		},
		Deliver: rapid.SampledFrom([]spec.Deliver{spec.Every, spec.Latest}).Draw(t, "deliver"),
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "deltas") {
		d := scenarioDelta{second("after", 4), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")}
		s.deltas = append(s.deltas, d)
		key := fmt.Sprint(d.name, i+1)
		s.handler[key] = rapid.SliceOfN(rapid.SampledFrom([]plugins.Verdict{plugins.OK, plugins.OK, plugins.Retry, plugins.Fail, plugins.Drop}), 1, 4).Draw(t, key)
		s.refused[key] = rapid.SampledFrom([]int{0, 0, 0, 1, 5, 200}).Draw(t, "refused "+key)
	}
	return s
}

// play plays the scenario to a pipeline with this clock and returns the writes with their times.
// pass lets time pass.
func (s scenario) play(t testing.TB, clock timer.Clock, pass func(*harness, time.Duration)) (came []string) {
	t.Helper()
	begin := clock.Now()
	verdicts, refused := map[string]int{}, map[string]int{}
	route := s.route
	route.Handler = handleEach(func(d *event.Delta) plugins.Result {
		runtime.Gosched()
		key := d.Key().Name + d.Object().ResourceVersion()
		verdict := plugins.OK
		if n := verdicts[key]; n < len(s.handler[key]) {
			verdict = s.handler[key][n]
		}
		verdicts[key]++
		came = append(came, fmt.Sprint(clock.Now().Sub(begin), " handle ", key, " ", verdict))
		if verdict == plugins.OK {
			return ok(d)
		}
		return plugins.Result{Verdict: verdict, Err: errors.New("no")}
	})
	route.Sinks = []spec.NamedSink{{Name: "out", Sink: &recordingSink{refuse: func(e event.Event) error {
		runtime.Gosched()
		key := e.Subject[len("default/"):] + e.K8sResourceVersion
		refused[key]++
		came = append(came, fmt.Sprint(clock.Now().Sub(begin), " write ", key, " ", refused[key]))
		if refused[key] <= s.refused[key] {
			return errDown
		}
		return nil
	}}}}
	b := openAs(t, pipeline.Config{Clock: clock}, route)
	b.Start(t.Context())
	for i, d := range s.deltas {
		pass(b, d.after)
		x := delta(t, event.Updated, d.name, i+1, i+1)
		x.Seen = clock.Now()
		b.admit(x)
	}
	pass(b, time.Hour)
	if pending := b.Pending("route0"); pending > 0 {
		t.Errorf("pending %d after an hour", pending)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return append(came, b.letters.got()...)
}

// On a fake clock a route does the same, at the same times, as on a real one: no action is late
// because the clock was advanced too early.
func TestIdleIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		var wanted []string
		synctest.Test(t, func(t *testing.T) {
			wanted = s.play(t, timer.Real(), func(_ *harness, d time.Duration) { pass(d) })
		})
		clock := timer.NewFake(epoch)
		fake := s.play(t, clock, func(b *harness, d time.Duration) {
			b.passTo(clock, clock.Now().Add(d))
			if err := b.Idle(b.t.Context()); err != nil {
				b.t.Fatal(err)
			}
		})
		if !slices.Equal(wanted, fake) {
			rt.Fatalf("%+v\nreal %q\nfake %q", s, wanted, fake)
		}
	})
}
