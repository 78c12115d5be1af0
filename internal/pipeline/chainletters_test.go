package pipeline_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// failing returns a handler and a sink that reject everything while broken is true.
func failing(broken *atomic.Bool) (h handlerFunc, s *recordingSink) {
	h = handleEach(func(d *event.Delta) plugins.Result {
		if broken.Load() {
			return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errBad)}
		}
		return plugins.Result{Events: []plugins.Emit{{Type: "made", Data: []byte(`{"of":"` + d.Key().Name + `"}`)}}}
	})
	s = &recordingSink{refuse: func(event.Event) error {
		if broken.Load() {
			return plugins.Reject(errBad)
		}
		return nil
	}}
	return h, s
}

// A dead letter of a downstream route contains the event, and is redelivered with it; no other
// target gets anything again.
func TestChainLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		_, took := failing(&broken)
		beside := &recordingSink{}
		b := openAs(t, pipeline.Config{Store: fakeStore{}},
			spec.Settings{Name: "a", Handler: emittingHandler("a", 2), Sinks: append(downstream("b"), out("beside", beside))}, downstreamRoute("b", out("out", took)))
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "x", 0, 1))
		pass(time.Second)
		equal(t, "dead letters", b.letters.got(), "x@1 out", "x@1 out")
		broken.Store(false)
		for i, letter := range b.letters.all {
			if e := letter.Delta.Event; letter.Route != "b" || e == nil || e.Type != []string{"a0", "a1"}[i] || e.Route != "a" {
				t.Errorf("the letter is %+v", letter)
			}
			if err := b.Redeliver(t.Context(), letter); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		equal(t, "sink", took.types(), "a0 x@1", "a1 x@1")
		for _, e := range took.events {
			if !e.Redelivered || e.Of.Event == nil {
				t.Errorf("got %+v", e)
			}
		}
		if took.events[0].ID == took.events[1].ID {
			t.Error("two events have one id")
		}
		equal(t, "the other sink of a", beside.types(), "a0 x@1", "a1 x@1")
		equalIDs(t, b.letters.gone, 1, 2)
		b.balanced("b")
	})
}

// A dead letter of an upstream route survives a crash until its event is on disk.
func TestUpstreamLetter(t *testing.T) {
	// Guarantee: chain-kept
	synctest.Test(t, func(t *testing.T) {
		var broken, down atomic.Bool
		broken.Store(true)
		down.Store(true)
		h, _ := failing(&broken)
		took := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}
		routes := func() []spec.Settings {
			return []spec.Settings{{Name: "a", Handler: h, Sinks: downstream("b")}, downstreamRoute("b", out("out", took))}
		}
		k := &flakyStore{fakeStore: fakeStore{}}
		b := openAs(t, pipeline.Config{Store: k}, routes()...)
		b.Start(t.Context())
		b.admit(delta(t, event.Added, "x", 0, 1))
		pass(time.Second)
		equal(t, "dead letters", b.letters.got(), "x@1 ")
		k.cut(b)
		letter := b.letters.all[0]
		broken.Store(false)
		again := func(b *harness, removed ...uint64) {
			t.Helper()
			if err := b.Redeliver(t.Context(), letter); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			if n := b.Pending("b"); n != 1 || b.Pending("a") != 0 {
				t.Errorf("a has %d pending, b %d", b.Pending("a"), n)
			}
			equalIDs(t, b.letters.gone, removed...)
		}
		again(b) // and a crash before a cut: b has nothing, but the dead letter exists

		crashed := openAs(t, pipeline.Config{Store: k}, routes()...)
		k.restore(crashed, "a")
		k.restore(crashed, "b")
		crashed.Start(t.Context())
		if n := crashed.Pending("b"); n != 0 {
			t.Errorf("b has %d pending", n)
		}
		again(crashed)
		k.flush(crashed)
		equalIDs(t, crashed.letters.gone) // written, but Saved was not called
		if err := crashed.Redeliver(t.Context(), letter); err == nil {
			t.Error("it is put through twice")
		}
		crashed.Saved(k.weigh)
		equalIDs(t, crashed.letters.gone, letter.ID)

		last := openAs(t, pipeline.Config{Store: k}, routes()...)
		k.restore(last, "b")
		down.Store(false)
		last.Start(t.Context())
		last.drain()
		if n := len(took.events); n < 1 || took.events[n-1].Type != "made" || !took.events[n-1].Redelivered || string(took.events[n-1].Data) != `{"of":"x"}` {
			t.Errorf("got %+v", took.events)
		}
	})
}

// Without a disk the dead letter is removed at once.
func TestUpstreamLetterWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		h, _ := failing(&broken)
		took := &recordingSink{}
		b := start(t, spec.Settings{Name: "a", Handler: h, Sinks: downstream("b")}, downstreamRoute("b", out("out", took)))
		b.admit(delta(t, event.Added, "x", 0, 1))
		pass(time.Second)
		broken.Store(false)
		if err := b.Redeliver(t.Context(), b.letters.all[0]); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		equalIDs(t, b.letters.gone, 1)
		equal(t, "sink", took.types(), "made x@1")
	})
}

// A delta that waits too long for room in another route becomes a dead letter; its redelivery goes
// to that route only.
func TestChainTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		took, beside := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}, &recordingSink{}
		full := downstreamRoute("b", out("out", took))
		full.Capacity, full.Overflow = 1, spec.Block
		b := start(t, spec.Settings{Name: "a", Handler: emittingHandler("a", 1), Sinks: append(downstream("b"), out("beside", beside)), Retry: spec.Retry{MaxAge: time.Minute}}, full)
		b.admit(delta(t, event.Added, "x", 0, 1), delta(t, event.Added, "y", 0, 2))
		pass(50 * time.Second)
		equal(t, "dead letters", b.letters.got())
		pass(20 * time.Second)
		if len(b.letters.all) != 1 || b.letters.all[0].Sink != "to b" || b.letters.all[0].Route != "a" || b.Pending("a") != 0 {
			t.Fatalf("dead letters %+v, a has %d pending", b.letters.all, b.Pending("a"))
		}
		down.Store(false)
		pass(time.Minute)
		if err := b.Redeliver(t.Context(), b.letters.all[0]); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if n := len(took.types()); n != 2 {
			t.Errorf("b delivered %v", took.types())
		}
		equal(t, "the other sink", beside.types(), "a0 x@1", "a0 y@2")
		equalIDs(t, b.letters.gone, 1)
		b.balanced("a")
		b.balanced("b")
	})
}
