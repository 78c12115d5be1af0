package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// joiningHandler is a handler that makes one event of a group, with its deltas as data.
func joiningHandler(fails func(group string) error) handlerFunc {
	return func(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
		var names []string
		for _, d := range batch {
			names = append(names, d.Key().Name)
		}
		group, last := strings.Join(names, " "), batch[len(batch)-1]
		results := make([]plugins.Result, len(batch))
		r := &results[len(batch)-1]
		if fails != nil {
			if err := fails(group); err != nil {
				*r = plugins.Result{Verdict: plugins.Fail, Err: err}
				return results, nil
			}
		}
		r.Events = []plugins.Emit{{Subject: fmt.Sprintf("%s+%d", group, last.Suppressed), Data: []byte("{}")}}
		return results, nil
	}
}

func groups(s *timedSink, fails func(string) error) spec.Settings {
	return spec.Settings{
		Name: "r", Sinks: to(s), Key: initials, Grouped: true, Joint: true, Handler: joiningHandler(fails),
		Batch: spec.Batch{Size: 4, Wait: 10 * time.Second},
	}
}

// TestGroups: the deltas of a key within the time are one event, made when the time is over or the
// group is full. All of them stay pending until the event is delivered.
func TestGroups(t *testing.T) {
	// Guarantee: groups
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		var down atomic.Bool
		s.refuse = func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		r := groups(s, nil)
		r.Retry = spec.Retry{Backoff: time.Second, Max: time.Second}
		b := start(t, r)
		b.admit(delta(t, event.Updated, "a1", 1, 2), delta(t, event.Updated, "a2", 1, 3), delta(t, event.Updated, "b1", 1, 4), delta(t, event.Updated, "a1", 2, 5))
		pass(5 * time.Second)
		for i := range 5 {
			b.admit(delta(t, event.Updated, fmt.Sprint("c", i), 1, 10+i))
		}
		pass(10 * time.Second)
		equal(t, "sink", s.noted(), "5s c0 c1 c2 c3+0@13", "10s a1 a2 a1+0@5", "10s b1+0@4", "15s c4+0@14")
		b.balanced("r")
		down.Store(true)
		b.admit(delta(t, event.Updated, "a1", 5, 20), delta(t, event.Updated, "a2", 3, 21))
		pass(15 * time.Second)
		b.admit(delta(t, event.Updated, "a3", 3, 22))
		if n := b.Pending("r"); n != 3 {
			t.Errorf("%d are pending while the sink is down", n)
		}
		down.Store(false)
		pass(5 * time.Second)
		if got := s.noted(); len(got) != 5 || !strings.HasSuffix(got[4], " a1 a2+0@21") {
			t.Errorf("when the sink is back: %q", got)
		}
		pass(time.Minute)
		equal(t, "the rest", s.noted()[5:], "40s a3+0@22")
		if n := b.value("route_deltas_total", "r", metrics.Delivered); n != 12 {
			t.Errorf("%v are delivered", n)
		}
		b.balanced("r")
	})
}

// TestGroupsFail: a rejected group becomes a dead letter for each of its deltas, which are
// redelivered one by one.
func TestGroupsFail(t *testing.T) {
	// Guarantee: groups
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		var calls atomic.Int32
		r := groups(s, func(group string) error {
			if n := calls.Add(1); strings.HasPrefix(group, "a") && n < 4 {
				return plugins.Reject(errors.New("no"))
			}
			return nil
		})
		b := start(t, r)
		b.admit(delta(t, event.Updated, "a1", 1, 2), delta(t, event.Updated, "a2", 1, 3), delta(t, event.Updated, "b1", 1, 4))
		pass(time.Minute)
		equal(t, "sink", s.noted(), "10s b1+0@4")
		equal(t, "letters", b.letters.got(), "a1@2 ", "a2@3 ")
		calls.Store(10)
		for _, letter := range b.letters.all {
			if err := b.Redeliver(t.Context(), letter); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		equal(t, "delivered again", s.noted()[1:], "1m0s a1+0@2", "1m0s a2+0@3")
		b.balanced("r")
	})
}

// TestGroupsRestart: a group that was not delivered stays pending as a whole.
func TestGroupsRestart(t *testing.T) {
	// Guarantee: windows-kept
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		s.refuse = func(event.Event) error { return errDown }
		k := &flakyStore{fakeStore: fakeStore{}}
		b := openAs(t, pipeline.Config{Store: k}, groups(s, nil))
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a1", 1, 2), delta(t, event.Updated, "a2", 1, 3))
		pass(20 * time.Second)
		b.admit(delta(t, event.Updated, "a3", 1, 4))
		k.cut(b)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s = &timedSink{began: time.Now()}
		b = openAs(t, pipeline.Config{Store: k}, groups(s, nil))
		k.restore(b, "r")
		b.Start(t.Context())
		pass(time.Minute)
		equal(t, "sink", s.noted(), "10s a1 a2 a3+0@4")
		b.balanced("r")
	})
}

// TestGroupsSinks: a sink that has a group does not get it again after a restart, nor combined with
// later deltas.
func TestGroupsSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := &timedSink{began: time.Now()}, &timedSink{began: time.Now()}
		bad.refuse = func(event.Event) error { return errDown }
		k := &flakyStore{fakeStore: fakeStore{}}
		r := groups(good, nil)
		r.Sinks = to(good, bad)
		b := openAs(t, pipeline.Config{Store: k}, r)
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a1", 1, 2), delta(t, event.Updated, "a2", 1, 3))
		pass(12 * time.Second)
		equal(t, "the one that works", good.noted(), "10s a1 a2+0@3")
		k.cut(b)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		good, bad = &timedSink{began: time.Now()}, &timedSink{began: time.Now()}
		r.Sinks = to(good, bad)
		b = openAs(t, pipeline.Config{Store: k}, r)
		k.restore(b, "r")
		b.Start(t.Context())
		b.admit(delta(t, event.Updated, "a3", 1, 4))
		pass(time.Minute)
		equal(t, "the one that worked before", good.noted(), "20s a3+0@4")
		equal(t, "the other", bad.noted(), "10s a1 a2+0@3", "20s a3+0@4")
		b.balanced("r")
	})
}

// TestGroupsLimit: a limit counts a group as one, and a suppressed group as all its deltas.
func TestGroupsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		r := groups(s, nil)
		r.Limit = spec.Limit{Key: initials, Every: time.Minute}
		b := start(t, r)
		for i := range 9 {
			b.admit(delta(t, event.Updated, fmt.Sprint("a", i), 1, 10+i))
		}
		pass(time.Minute)
		equal(t, "sink", s.noted(), "0s a0 a1 a2 a3+0@13")
		b.balanced("r")
		b.admit(delta(t, event.Updated, "a9", 1, 30))
		pass(time.Minute)
		equal(t, "later", s.noted()[1:], "1m10s a9+5@30")
		if n := b.value("route_deltas_total", "r", metrics.Suppressed); n != 5 {
			t.Errorf("%v suppressed", n)
		}
		b.balanced("r")
	})
}

// TestGroupsOfHandlers: a handler without group support gets the deltas of one group in a batch,
// and makes events of each.
func TestGroupsOfHandlers(t *testing.T) {
	// Guarantee: groups
	synctest.Test(t, func(t *testing.T) {
		s := &timedSink{began: time.Now()}
		var batches []string
		r := groups(s, nil)
		r.Joint = false
		r.Handler = handlerFunc(func(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
			var names []string
			for _, d := range batch {
				names = append(names, d.Key().Name)
			}
			batches = append(batches, strings.Join(names, " "))
			results := make([]plugins.Result, len(batch))
			for i := range batch {
				results[i] = ok(batch[i])
			}
			return results, nil
		})
		b := start(t, r)
		b.admit(delta(t, event.Updated, "a1", 1, 2), delta(t, event.Updated, "b1", 1, 3), delta(t, event.Updated, "a2", 1, 4), delta(t, event.Updated, "b2", 1, 5))
		pass(time.Minute)
		equal(t, "batches", batches, "a1 a2", "b1 b2")
		equal(t, "sink", s.noted(), "10s a1@2", "10s a2@4", "10s b1@3", "10s b2@5")
		b.balanced("r")
	})
}
