package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// inOrder is a sink that keeps the order of a key within a write.
func inOrder(s *recordingSink) []spec.NamedSink {
	s.inOrder = true
	return []spec.NamedSink{{Name: "in order", Sink: s, InOrder: true}}
}

// hot returns updates of a, and one of each of some others behind the first of them.
func hot(t *testing.T, n int, others ...string) []*event.Delta {
	t.Helper()
	deltas := []*event.Delta{delta(t, event.Updated, "a", 1, 2)}
	for _, name := range others {
		deltas = append(deltas, delta(t, event.Updated, name, 1, 2))
	}
	for v := 3; v < n+2; v++ {
		deltas = append(deltas, delta(t, event.Updated, "a", v-1, v))
	}
	return deltas
}

// TestSeveralOfAKey: a write has several deltas of one key, in order, if all sinks of the route
// keep that order, and a rejected delta does not pause it. The same holds for a batch of a handler.
func TestSeveralOfAKey(t *testing.T) {
	// Guarantee: key-order-in-batch
	sameKey := func(context.Context, *event.Delta) (string, error) { return "k", nil }
	noKey := func(context.Context, *event.Delta) (string, error) { return "", nil }
	alone := append([]int{1, 4}, slices.Repeat([]int{1}, 18)...)
	for name, test := range map[string]struct {
		route spec.Settings
		other *recordingSink
		want  []int
	}{
		"in order":            {spec.Settings{}, nil, []int{1, 8, 8, 6}},
		"not in order":        {spec.Settings{}, &recordingSink{}, alone},
		"pauses":              {spec.Settings{OnFailure: spec.Pause}, nil, alone},
		"with a key":          {spec.Settings{Key: sameKey}, nil, []int{1, 8, 8, 6}},
		"with an empty key":   {spec.Settings{Key: noKey}, nil, nil},
		"with a handler":      {spec.Settings{Handler: handleEach(ok)}, nil, []int{1, 8, 8, 6}},
		"drops every other":   {spec.Settings{Handler: handleEach(evenOnly)}, nil, nil},
		"two events of each":  {spec.Settings{Handler: handleEach(two)}, nil, []int{2, 16, 16, 12}},
		"and a second one":    {spec.Settings{}, &recordingSink{inOrder: true}, []int{1, 8, 8, 6}},
		"delivers the latest": {spec.Settings{Deliver: spec.Latest}, nil, []int{1, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, open := blockingSink()
				var batches []int
				if h := test.route.Handler; h != nil {
					test.route.Handler = handlerFunc(func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
						batches = append(batches, len(batch))
						return h.Handle(ctx, batch)
					})
				}
				test.route.Sinks = inOrder(s)
				if test.other != nil {
					test.route.Sinks = append(test.route.Sinks, spec.NamedSink{Name: "other", Sink: test.other, InOrder: test.other.inOrder})
				}
				test.route.Batch = spec.Batch{Size: 8}
				b := start(t, test.route)
				b.admit(hot(t, 1)...)
				synctest.Wait()
				b.admit(hot(t, 20, "b", "c")[1:]...)
				b.admit(delta(t, event.Updated, "d", 1, 2))
				open()
				b.drain()
				last := map[string]string{}
				for _, e := range s.events {
					if e.K8sResourceVersion < last[e.Subject] && len(e.K8sResourceVersion) <= len(last[e.Subject]) {
						t.Errorf("%s@%s came after %s", e.Subject, e.K8sResourceVersion, last[e.Subject])
					}
					last[e.Subject] = e.K8sResourceVersion
				}
				if got := s.wrote(); test.want != nil && !slices.Equal(got, test.want) {
					t.Errorf("wrote %v, want %v", got, test.want)
				}
				if test.route.Handler != nil && !slices.Equal(batches, []int{1, 8, 8, 6}) {
					t.Errorf("the handler got %v", batches)
				}
				b.balanced("route0")
			})
		})
	}
}

func evenOnly(d *event.Delta) plugins.Result {
	if v := d.Object().ResourceVersion(); (v[len(v)-1]-'0')%2 == 1 {
		return plugins.Result{Verdict: plugins.Drop}
	}
	return ok(d)
}

func two(*event.Delta) plugins.Result {
	return plugins.Result{Events: []plugins.Emit{{Data: []byte(`{}`)}, {Data: []byte(`{}`)}}}
}

// TestPartOfAKeyFails: an event that a sink refuses in the middle of a key delays the later events
// of the key, and no others. The events before it are done, even after a crash.
func TestPartOfAKeyFails(t *testing.T) {
	// Guarantee: key-order-in-batch
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		broken := true
		s.refuse = func(e event.Event) error {
			if broken && e.Subject == "default/a" && e.K8sResourceVersion == "4" {
				return plugins.RetryLater(errDown, time.Minute)
			}
			return nil
		}
		second := &recordingSink{}
		route := spec.Settings{Sinks: append(inOrder(s), spec.NamedSink{Name: "second", Sink: second, InOrder: true}), Batch: spec.Batch{Size: 8}}
		b, k := startOn(t, pipeline.Config{}, route)
		b.admit(delta(t, event.Updated, "x", 1, 2))
		synctest.Wait()
		b.admit(hot(t, 5, "b")...)
		open()
		pass(time.Second)
		equal(t, "sink", s.got(), "updated x@2", "updated a@2", "updated b@2", "updated a@3")
		equal(t, "second", second.got(), "updated x@2", "updated a@2", "updated b@2", "updated a@3", "updated a@4", "updated a@5", "updated a@6")
		k.cut(b)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		broken = false
		next := openAs(t, pipeline.Config{Store: k}, route)
		k.restore(next, "route0")
		next.Start(t.Context())
		next.drain()
		equal(t, "sink", s.got()[4:], "updated a@4", "updated a@5", "updated a@6")
		if n := len(second.got()); n != 7 {
			t.Errorf("the second sink got %d, want nothing again", n-7)
		}
		if w := s.wrote(); w[len(w)-1] != 3 {
			t.Errorf("wrote %v", w)
		}
		k.cut(next)
		if n := len(k.fakeStore["route0"]); n != 0 {
			t.Errorf("%d on disk still", n)
		}
	})
}

// TestKeyAfterAnOutage: a write that a sink refused as a whole is repeated as a whole, not one
// delta of a key at a time.
func TestKeyAfterAnOutage(t *testing.T) {
	// Guarantee: key-order-in-batch
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		s := &recordingSink{refuse: func(event.Event) error {
			if up.Load() {
				return nil
			}
			return errDown
		}}
		b := start(t, spec.Settings{Sinks: inOrder(s), Batch: spec.Batch{Size: 8}})
		b.admit(hot(t, 24)...)
		pass(time.Hour)
		before := len(s.wrote())
		up.Store(true)
		pass(time.Hour)
		if got := s.wrote()[before:]; !slices.Equal(got, []int{1, 8, 8, 7}) {
			t.Errorf("wrote %v", got)
		}
		var want []string
		for v := 2; v < 26; v++ {
			want = append(want, fmt.Sprintf("updated a@%d", v))
		}
		equal(t, "sink", s.got(), want...)
	})
}

// TestChainInOrder: if a route has no room for a delta, a later one of its key does not overtake
// it, although there is room by then.
func TestChainInOrder(t *testing.T) {
	// Guarantee: key-order-in-batch
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		once := sync.OnceFunc(open)
		target := downstreamRoute("target", inOrder(s)...)
		target.Capacity = 1
		target.Filter = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
			if d.Object().ResourceVersion() == "4" {
				once() // there is room now
				time.Sleep(100 * time.Millisecond)
			}
			return true, nil
		})
		b := start(t, spec.Settings{Name: "upstream", Sinks: downstream("target"), Batch: spec.Batch{Size: 3, Wait: time.Second}}, target)
		b.admit(delta(t, event.Updated, "a", 1, 2))
		pass(2 * time.Second)
		b.admit(hot(t, 4)[1:]...)
		time.AfterFunc(time.Minute, once)
		pass(time.Hour)
		equal(t, "sink", s.got(), "updated a@2", "updated a@3", "updated a@4", "updated a@5")
	})
}

// TestEmptyKey: if the key of a route is empty for several objects, their order counts, too,
// although a sink cannot see that they share it.
func TestEmptyKey(t *testing.T) {
	// Guarantee: key-order-in-batch
	synctest.Test(t, func(t *testing.T) {
		refused := false
		s := &recordingSink{refuse: func(e event.Event) error {
			if e.Subject == "default/b" && !refused {
				refused = true
				return errDown
			}
			return nil
		}}
		noKey := func(context.Context, *event.Delta) (string, error) { return "", nil }
		b := start(t, spec.Settings{Key: noKey, Sinks: inOrder(s), Batch: spec.Batch{Size: 3, Wait: time.Second}})
		b.admit(delta(t, event.Updated, "a", 1, 2), delta(t, event.Updated, "b", 1, 2), delta(t, event.Updated, "c", 1, 2))
		b.drain()
		equal(t, "sink", s.got(), "updated a@2", "updated b@2", "updated c@2")
	})
}
