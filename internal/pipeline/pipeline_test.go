package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// to names the sinks of a route s0, s1, ….
func to(sinks ...plugins.Sink) []spec.NamedSink {
	var named []spec.NamedSink
	for i, s := range sinks {
		named = append(named, spec.NamedSink{Name: fmt.Sprintf("s%d", i), Sink: s})
	}
	return named
}

func equal(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s0, s1 := &recordingSink{}, &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s0, s1), Ops: []event.Op{event.Added, event.Updated, event.Deleted}})
		initial := delta(t, event.Added, "old", 0, 1)
		initial.Initial = true
		other := delta(t, event.Added, "x", 0, 9)
		other.Source = "nodes"
		b.admit(initial, other,
			delta(t, event.Added, "a", 0, 2), delta(t, event.Updated, "b", 2, 3), delta(t, event.Sync, "b", 0, 3), delta(t, event.Deleted, "c", 4, 0))
		synctest.Wait()
		equal(t, "s0", s0.got(), "added a@2", "updated b@3", "deleted c@4")
		equal(t, "s1", s1.got(), s0.got()...)
		e := s0.events[1]
		if e.ID == "" || e.Source != "/clusters/test/sources/pods" || e.Route != "route0" || e.K8sUID != "uid-b" || e.Subject != "default/b" {
			t.Errorf("got %+v", e)
		}
		if want := string(event.Payload(delta(t, event.Updated, "b", 2, 3))); string(e.Data) != want {
			t.Errorf("got %s, want %s", e.Data, want)
		}
		b.balanced("route0")
		for name, want := range map[string]float64{"route_delivery_duration_seconds": 3, "route_events_total": 6} {
			if got := b.value(name, "route0"); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

func TestExisting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s0, s1 := &recordingSink{}, &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s0)}, spec.Settings{Sinks: to(nil, s1)[1:], Existing: true})
		d := delta(t, event.Added, "a", 0, 1)
		d.Initial = true
		b.admit(d, delta(t, event.Updated, "a", 1, 2))
		b.drain()
		equal(t, "skip", s0.got(), "updated a@2")
		equal(t, "deliver", s1.got(), "added a@1", "updated a@2")
		if !strings.Contains(string(s1.events[0].Data), `"initial":true`) {
			t.Errorf("the event does not say initial: %s", s1.events[0].Data)
		}
	})
}

func TestFullBatchDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 2, Wait: time.Hour}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		synctest.Wait()
		b.admit(delta(t, event.Added, "b", 0, 2))
		synctest.Wait()
		equal(t, "sink", s.got(), "added a@1", "added b@2")
		b.admit(delta(t, event.Added, "c", 0, 3))
		b.drain() // does not wait an hour either
		equal(t, "sink", s.got(), "added a@1", "added b@2", "added c@3")
	})
}

// TestOneWriteHoldsOneDeltaOfAKey: a sink that refuses one of several events and takes the next
// must not reverse the order of a key.
func TestOneWriteHoldsOneDeltaOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := false
		s := &recordingSink{refuse: func(e event.Event) error {
			if e.K8sResourceVersion == "1" && !refused {
				refused = true
				return errDown
			}
			return nil
		}}
		handled := 0
		b := open(t, spec.Settings{Sinks: to(s), Handler: handleEach(func(d *event.Delta) plugins.Result { handled++; return ok(d) }), HandlerName: "h"})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Added, "b", 0, 3))
		b.Start(t.Context()) // with one batch
		b.drain()
		equal(t, "sink", s.got(), "added b@3", "added a@1", "updated a@2")
		if handled != 3 {
			t.Errorf("handled %d times, want 3: what the handler made is kept", handled)
		}
		if n := b.value("handler_call_duration_seconds", "h"); n != 1 {
			t.Errorf("%v calls of the handler, want 1", n)
		}
	})
}

func TestHandlerEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Handler: handleEach(func(d *event.Delta) plugins.Result {
			switch d.Key().Name {
			case "drop":
				return plugins.Result{Verdict: plugins.Drop, Events: []plugins.Emit{{Data: []byte("1")}}}
			case "none":
				return plugins.Result{}
			}
			return plugins.Result{Events: []plugins.Emit{{Data: []byte("1")}, {Data: []byte("2"), Type: event.TypePrefix + "x", Subject: "default/y"}}}
		})})
		b.admit(delta(t, event.Added, "drop", 0, 1), delta(t, event.Added, "none", 0, 2), delta(t, event.Added, "a", 0, 3))
		b.drain()
		equal(t, "sink", s.got(), "added a@3", "x y@3")
		if s.events[0].ID == s.events[1].ID || string(s.events[1].Data) != "2" {
			t.Errorf("got %+v", s.events)
		}
		if n := b.value("route_deltas_total", "route0", metrics.Dropped); n != 2 {
			t.Errorf("%v dropped, want 2", n)
		}
		b.balanced("route0")
	})
}

// TestKeys: deltas that share a key are processed one after another; those of other keys are not
// delayed, and an object whose key changes does not overtake itself.
func TestKeys(t *testing.T) {
	// Guarantee: object-order, absent-in-key
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		var mu sync.Mutex
		held, running := true, []string{}
		keys := map[string]string{"1": "n1", "2": "n1", "3": "n2", "4": "n3"}
		b := start(t, spec.Settings{
			Sinks: to(s), Concurrency: 4, Batch: spec.Batch{Size: 1}, Retry: spec.Retry{Attempts: 1},
			Key: func(_ context.Context, d *event.Delta) (string, error) {
				key, known := keys[d.Object().ResourceVersion()]
				switch {
				case known:
					return key, nil
				case d.Key().Name == "bad":
					return "", errors.New("no such overload")
				case d.Key().Name == "worse":
					panic("no such thing")
				}
				return "", fmt.Errorf("evaluation: %w", cel.ErrAbsent)
			},
			Handler: handleEach(func(d *event.Delta) plugins.Result {
				mu.Lock()
				defer mu.Unlock()
				if d.Object().ResourceVersion() == "1" && held {
					return plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(errDown, time.Minute)}
				}
				running = append(running, d.Key().Name+"@"+d.Object().ResourceVersion())
				return ok(d)
			}),
		})
		b.admit(
			delta(t, event.Added, "a", 0, 1),   // n1, held
			delta(t, event.Added, "b", 0, 2),   // n1, behind it
			delta(t, event.Updated, "b", 2, 3), // n2, behind the same object's in n1
			delta(t, event.Added, "c", 0, 4),   // n3, free
			delta(t, event.Added, "d", 0, 5),   // has no such key
			delta(t, event.Added, "bad", 0, 6),
			delta(t, event.Added, "worse", 0, 7),
		)
		pass(time.Second)
		slices.Sort(running)
		equal(t, "while the first is held", running, "c@4", "d@5")
		equal(t, "dead letters", slices.Sorted(slices.Values(b.letters.got())), "bad@6 ", "worse@7 ")
		running, held = nil, false
		b.drain()
		equal(t, "after", running, "a@1", "b@2", "b@3")
		if n := b.value("route_errors_total", "route0", "absent"); n != 1 {
			t.Errorf("%v absent keys, want 1", n)
		}
		b.balanced("route0")
	})
}

// TestReady: until the objects of its look-ups are in the cache, deltas are pending unseen; then
// they are evaluated in order.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		ready, calls := make(chan struct{}), 0
		b := start(t, spec.Settings{
			Sinks: to(s), Ready: ready, Concurrency: 3, Deliver: spec.Latest,
			Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
				calls++
				return d.Key().Name != "b" && d.Object().ResourceVersion() != "5", nil
			}),
			Key: func(context.Context, *event.Delta) (string, error) { calls++; return "k", nil },
		})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2), delta(t, event.Updated, "a", 1, 3), delta(t, event.Added, "c", 0, 4),
			delta(t, event.Updated, "a", 3, 5))
		pass(time.Hour)
		if status := b.Status()[0]; calls != 0 || status.Pending != 5 || !status.Waiting {
			t.Errorf("%d calls, %+v", calls, status)
		}
		close(ready)
		b.drain()
		equal(t, "sink", s.got(), "added a@3", "added c@4")
		if b.Status()[0].Waiting {
			t.Error("still waiting")
		}
		if n := b.value("route_deltas_total", "route0", metrics.Filtered); n != 2 {
			t.Errorf("%v filtered, want 2", n)
		}
		b.balanced("route0")
	})
}

func TestDrainDoesNotWaitForRoutesThatAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, spec.Settings{Name: "r", Sinks: to(&recordingSink{}), Ready: make(chan struct{})})
		b.admit(delta(t, event.Added, "a", 0, 1))
		begin := time.Now()
		if err := b.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), `route "r" 1`) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("waited %v", took)
		}
	})
}

func TestDrainTimesOutAndCloseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		hang := &recordingSink{before: func(ctx context.Context) { <-ctx.Done(); ended = ctx.Err() }, refuse: func(event.Event) error { return ended }}
		down := &recordingSink{refuse: func(event.Event) error { return errDown }}
		b := start(t, spec.Settings{Name: "hangs", Sinks: to(hang)}, spec.Settings{Name: "down", Sinks: to(nil, down)[1:]}, spec.Settings{Sinks: to(nil, nil, &recordingSink{})[2:]})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := b.Drain(ctx)
		if err == nil || !strings.Contains(err.Error(), `route "hangs" 2, route "down" 2`) || strings.Contains(err.Error(), "route2") {
			t.Errorf("got %v", err)
		}
		if _, err := b.Admit(t.Context(), delta(t, event.Added, "c", 0, 3)); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("Admit after Drain: %v", err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("Close again: %v", err)
		}
		if n := b.Pending("hangs"); n != 2 {
			t.Errorf("%d pending after Close, want 2", n)
		}
		b.balanced("hangs")
	})
}

func TestCloseSaysThatAHandlerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		b := start(t, spec.Settings{Sinks: to(&recordingSink{before: func(context.Context) { <-end }})})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(end)
	})
}

func TestNewRefuses(t *testing.T) {
	for _, n := range []int{0, 65} {
		_, err := pipeline.New(pipeline.Config{Routes: []spec.Settings{{Name: "r", Sinks: make([]spec.NamedSink, n)}}})
		if err == nil || !strings.Contains(err.Error(), `route "r"`) {
			t.Errorf("%d sinks: %v", n, err)
		}
	}
	p, err := pipeline.New(pipeline.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("Close without Start: %v", err)
	}
}

// TestAdmitThatIsInterrupted: the result of a filter whose context has ended is ignored.
func TestAdmitThatIsInterrupted(t *testing.T) {
	b := start(t, spec.Settings{Sinks: to(&recordingSink{}), Filter: filters.Func(func(ctx context.Context, _ *event.Delta) (bool, error) {
		return false, ctx.Err()
	})})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if commit, err := b.Admit(ctx, delta(t, event.Added, "a", 0, 1)); commit != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOldestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, spec.Settings{Sinks: to(&recordingSink{refuse: func(event.Event) error { return errDown }})})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(90*time.Second + 500*time.Millisecond)
		if age := b.value("route_oldest_pending_seconds", "route0"); age != 90 {
			t.Errorf("%v seconds, want 90", age)
		}
	})
}

// TestReadyBetweenAdmitAndCommit: a filter that could not be evaluated when a delta was admitted is
// evaluated later, even if the route became ready before the delta was committed.
func TestReadyBetweenAdmitAndCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ready := &recordingSink{}, make(chan struct{})
		odd := filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.Object().ResourceVersion() != "2", nil })
		b := start(t, spec.Settings{Sinks: to(s), Ready: ready, Filter: odd})
		commit, err := b.Admit(t.Context(), delta(t, event.Added, "a", 0, 2))
		if err != nil {
			t.Fatal(err)
		}
		close(ready)
		synctest.Wait()
		commit.Commit()
		b.admit(delta(t, event.Added, "b", 0, 3))
		b.drain()
		equal(t, "sink", s.got(), "added b@3")
		b.balanced("route0")
	})
}
