package pipeline_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// settled collects the numbers of deltas that are done.
type settled struct {
	mu      sync.Mutex
	numbers []uint64
}

func (s *settled) add(_ string, numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers = append(s.numbers, numbers...)
}

func (s *settled) got() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.numbers))
}

// take passes deltas of another process to the route route0, with the numbers 1, 2, …
func (b *harness) take(work ...pipeline.Work) {
	b.t.Helper()
	for i := range work {
		work[i].Number = uint64(i + 1)
		if err := pipeline.Take(b.Pipeline, "route0", &work[i]); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Deltas of another process are delivered in the order of their key, none is coalesced, filtered or
// dropped, however many there are, and each is reported when it is done: delivered, dropped by the
// handler, or dead-lettered.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, done := &recordingSink{}, &settled{}
		handler := handleEach(func(d *event.Delta) plugins.Result {
			switch d.Key().Name {
			case "dropped":
				return plugins.Result{Verdict: plugins.Drop}
			case "failed":
				return plugins.Result{Verdict: plugins.Fail}
			}
			return ok(d)
		})
		b := openAs(t, pipeline.Config{Settled: done.add, Part: true}, spec.Settings{
			Sinks: to(sink), Handler: handler, Capacity: 2, Overflow: spec.DropOldest, Deliver: spec.Latest, Concurrency: 4,
		})
		b.Start(t.Context())
		var all []pipeline.Work
		var want []string
		for i := range 20 {
			name := fmt.Sprint("pod", i%3)
			all = append(all, pipeline.Work{Delta: delta(t, event.Updated, name, i+1, i+2), Key: "k", Keyed: true})
			want = append(want, fmt.Sprintf("updated %s@%d", name, i+2))
		}
		all = append(all, pipeline.Work{Delta: delta(t, event.Added, "dropped", 0, 1)}, pipeline.Work{Delta: delta(t, event.Added, "failed", 0, 1)})
		b.take(all...)
		b.drain()
		synctest.Wait() // a worker reports deltas as done after they are no longer pending
		equal(t, "delivered", sink.got(), want...)
		if n := len(done.got()); n != len(all) {
			t.Errorf("%d deltas are done, want %d: %v", n, len(all), done.got())
		}
		if n := len(b.letters.got()); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
		if depth := b.value("route_queue_deltas", "route0"); depth != 0 {
			t.Errorf("a part sets the gauge of the route: %v", depth)
		}
	})
}

// A delta that the pipeline has not delivered when it is closed is not reported as done: its sender
// delivers it again.
func TestTakeUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := &settled{}
		sink := &recordingSink{refuse: func(e event.Event) error {
			if e.Key == "down" {
				return errDown
			}
			return nil
		}}
		b := openAs(t, pipeline.Config{Settled: done.add}, spec.Settings{Sinks: to(sink)})
		b.Start(t.Context())
		b.take(
			pipeline.Work{Delta: delta(t, event.Added, "a", 0, 1), Key: "down", Keyed: true},
			pipeline.Work{Delta: delta(t, event.Added, "b", 0, 1), Key: "up", Keyed: true},
		)
		pass(time.Minute)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := done.got(); !slices.Equal(got, []uint64{2}) {
			t.Errorf("done: %v, want 2 only", got)
		}
		if err := pipeline.Take(b.Pipeline, "other", &pipeline.Work{}); err == nil {
			t.Error("a closed pipeline takes a delta")
		}
	})
}

// An event that the leader has made is delivered as it is, also after a failed attempt.
func TestTakeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := 0
		var got event.Event
		sink := &recordingSink{refuse: func(e event.Event) error {
			if refusals++; refusals < 3 {
				return errDown
			}
			got = e
			return nil
		}}
		b := openAs(t, pipeline.Config{}, spec.Settings{Sinks: to(sink)})
		b.Start(t.Context())
		d := delta(t, event.Added, "a", 0, 1)
		d.Event = &event.Event{ID: "id", Type: "type", Subject: "subject", Data: []byte("1"), Route: "other"}
		b.take(pipeline.Work{Delta: d, Key: "k", Keyed: true, Made: true})
		b.drain()
		if got.ID != "id" || got.Type != "type" || got.Subject != "subject" || string(got.Data) != "1" || got.Key != "k" || got.Of != d {
			t.Errorf("delivered %+v", got)
		}
	})
}

// A redelivered dead letter goes to the target that rejected it, and to no other.
func TestTakeForOneSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, done := &recordingSink{}, &recordingSink{}, &settled{}
		b := openAs(t, pipeline.Config{Settled: done.add}, spec.Settings{Sinks: to(first, second)})
		b.Start(t.Context())
		b.take(pipeline.Work{Delta: delta(t, event.Added, "a", 0, 1), Sink: "s1"})
		b.drain()
		if n, m := len(first.got()), len(second.got()); n != 0 || m != 1 {
			t.Errorf("%d and %d events, want 0 and 1", n, m)
		}
		if err := pipeline.Take(b.Pipeline, "route0", &pipeline.Work{Delta: delta(t, event.Added, "a", 0, 1), Sink: "gone"}); err == nil {
			t.Error("a delta for a sink that the route does not have is taken")
		}
	})
}

// maxAge of the route counts from the time at which the delta was seen, and that of a redelivered
// dead letter from the time at which it was passed.
func TestTakeAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, done := &recordingSink{}, &settled{}
		b := openAs(t, pipeline.Config{Settled: done.add}, spec.Settings{Sinks: to(sink), MaxAge: time.Minute})
		b.Start(t.Context())
		old, again := delta(t, event.Added, "old", 0, 1), delta(t, event.Added, "again", 0, 1)
		old.Seen = time.Now().Add(-2 * time.Minute)
		again.Seen, again.Redelivered = old.Seen, true
		b.take(pipeline.Work{Delta: old}, pipeline.Work{Delta: again})
		b.drain()
		synctest.Wait() // Drain may return before the last delta is reported as settled
		equal(t, "delivered", sink.got(), "added again@1")
		if n := len(b.letters.got()); n != 1 || len(done.got()) != 2 {
			t.Errorf("%d dead letters, want 1, and %v done", n, done.got())
		}
	})
}
