package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// A rejected delta is redelivered to the sink that rejected it, and to no other, and its dead
// letter is removed only then.
func TestRedeliver(t *testing.T) {
	// Guarantee: dead-letter-retry, dead-letters-end
	synctest.Test(t, func(t *testing.T) {
		broken := true
		good := &recordingSink{}
		var wait chan struct{} // nil: the sink answers at once
		bad := &recordingSink{refuse: func(event.Event) error {
			if wait != nil {
				<-wait
			}
			if broken {
				return plugins.Reject(errBad)
			}
			return nil
		}}
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, spec.Settings{Sinks: to(good, bad)})
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		pass(time.Second)
		equal(t, "dead letters", b.letters.got(), "a@1 s1", "b@2 s1")
		b.Dirty()
		letter := b.letters.all[0]

		wait = make(chan struct{})
		if err := b.Redeliver(t.Context(), letter); err != nil { // it fails again
			t.Fatal(err)
		}
		if err := b.Redeliver(t.Context(), letter); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("twice at a time: %v", err)
		}
		if cuts := b.Dirty(); len(cuts) > 0 {
			t.Errorf("the checkpoint got: %v", cuts)
		}
		close(wait)
		pass(time.Second)
		equal(t, "dead letters", b.letters.got(), "a@1 s1", "b@2 s1", "a@1 s1")
		equalIDs(t, b.letters.gone, letter.ID)

		broken = false
		if err := b.Redeliver(t.Context(), b.letters.all[2]); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		equalIDs(t, b.letters.gone, letter.ID, b.letters.all[2].ID)
		equal(t, "the refusing sink", bad.got(), "added a@1")
		equal(t, "the other", good.got(), "added a@1", "added b@2")
		if !bad.events[0].Redelivered || good.events[0].Redelivered {
			t.Error("what is redelivered is not flagged, or what is not is")
		}
		// only the counts have changed
		if cuts := b.Dirty(); len(cuts) != 1 || len(cuts[0].Put)+len(cuts[0].Removed) > 0 || len(cuts[0].Rules) != 1 || cuts[0].Rules[0].Kind != checkpoint.KindCounts {
			t.Errorf("the checkpoint got: %v", cuts)
		}
		b.balanced("route0")
	})
}

// A redelivered delta is placed behind the pending deltas of its key, and no delta is coalesced
// across it.
func TestRedeliverInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		first := true
		s := &recordingSink{refuse: func(event.Event) error {
			switch {
			case first:
				first = false
				return plugins.Reject(errBad)
			case !up.Load():
				return errDown
			}
			return nil
		}}
		b := start(t, spec.Settings{Sinks: to(s), Deliver: spec.Latest, Retry: spec.Retry{Max: time.Second}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Second)
		b.admit(delta(t, event.Updated, "a", 1, 2))
		pass(time.Second) // attempted
		b.admit(delta(t, event.Updated, "a", 2, 3), delta(t, event.Updated, "a", 3, 4))
		if err := b.Redeliver(t.Context(), b.letters.all[0]); err != nil {
			t.Fatal(err)
		}
		b.admit(delta(t, event.Updated, "a", 4, 5), delta(t, event.Updated, "a", 5, 6))
		pass(time.Hour)
		if len(b.letters.gone) > 0 {
			t.Error("the letter was removed before its delta was delivered")
		}
		up.Store(true)
		pass(time.Minute)
		equalIDs(t, b.letters.gone, 1)
		equal(t, "sink", s.got(), "updated a@2", "updated a@4", "added a@1", "updated a@6")
		b.balanced("route0")
	})
}

func TestRedeliverRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		b := start(t, spec.Settings{Name: "r", Sinks: to(&recordingSink{})}, spec.Settings{Name: "waits", Sinks: to(&recordingSink{}), Ready: never},
			spec.Settings{Name: "full", Sinks: []spec.NamedSink{{Name: "down", Sink: &recordingSink{refuse: func(event.Event) error { return errDown }}}}, Capacity: 1})
		b.admit(delta(t, event.Added, "x", 0, 1))
		pass(time.Minute)
		for _, c := range []struct{ route, sink, want string }{
			{"gone", "", `route "gone" of the dead letter is not configured`},
			{"r", "gone", `delivers to "gone"`},
			{"waits", "", "not ready"},
			{"full", "", "queue.memory"},
		} {
			err := b.Redeliver(t.Context(), checkpoint.Letter{ID: 1, Route: c.route, Sink: c.sink, Delta: delta(t, event.Added, "a", 0, 1)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %s", c.route, err, c.want)
			}
		}
	})
}

// The filter of a delta on which it had failed is evaluated again.
func TestRedeliverUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails, wants, s := errBad, true, &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Filter: filters.Func(func(context.Context, *event.Delta) (bool, error) { return wants, fails })})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		pass(time.Second)
		again := func(i int) {
			t.Helper()
			if err := b.Redeliver(t.Context(), b.letters.all[i]); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		again(0)
		equal(t, "dead letters", b.letters.got(), "a@1 ", "b@2 ", "a@1 ")
		if !b.letters.all[2].Unseen {
			t.Error("it failed again, and the letter does not say so")
		}
		fails = nil
		again(1)
		equal(t, "sink", s.got(), "added b@2")
		wants = false
		again(2)
		equal(t, "sink", s.got(), "added b@2")
		equalIDs(t, b.letters.gone, uint64(1), uint64(2), uint64(3))
		b.balanced("route0")
	})
}

// The dead letters of many rejected deltas are written in few writes.
func TestDeadLettersInOneWrite(t *testing.T) {
	for name, route := range map[string]spec.Settings{
		"sink": {Sinks: to(&recordingSink{refuse: func(event.Event) error { return plugins.Reject(errBad) }})},
		"handler": {Sinks: to(&recordingSink{}), Handler: handleEach(func(*event.Delta) plugins.Result {
			return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errors.New("no"))}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				route.Batch = spec.Batch{Size: 64, Wait: time.Millisecond}
				b := open(t, route)
				for i := range 64 {
					b.admit(delta(t, event.Added, fmt.Sprintf("n%d", i), 0, i+1))
				}
				b.Start(t.Context()) // with one batch
				pass(time.Second)
				if len(b.letters.all) != 64 || b.letters.writes != 1 {
					t.Errorf("%d letters in %d writes", len(b.letters.all), b.letters.writes)
				}
				b.balanced("route0")
			})
		})
	}
}

func equalIDs(t *testing.T, got []uint64, want ...uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("removed: got %v, want %v", got, want)
	}
}
