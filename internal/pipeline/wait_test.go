package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestRareDeltasDoNotWait: deltas that come one after another, with a pause in between, are
// delivered at once. When three have come within batch.wait, those behind them are collected until
// it has passed since the first of the three; from then on there is one batch in each batch.wait.
func TestRareDeltasDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 64, Wait: 10 * time.Millisecond}})
		n := 0
		admit := func(pause time.Duration) {
			n++
			b.admit(delta(t, event.Added, fmt.Sprint("o", n), 0, n))
			pass(pause)
		}
		for range 20 { // two in each 10 ms
			admit(5 * time.Millisecond)
			if len(s.got()) != n {
				t.Fatalf("%d of %d delivered after 5ms", len(s.got()), n)
			}
		}
		pass(10 * time.Millisecond)
		before := len(s.wrote())
		for range 33 { // ten in each 10 ms
			admit(time.Millisecond)
		}
		if got, want := s.wrote()[before:], []int{1, 1, 1, 7, 10, 10}; !slices.Equal(got, want) {
			t.Errorf("writes of %v events, want %v", got, want)
		}
		pass(20 * time.Millisecond)
		before = len(s.wrote())
		admit(0)
		if got := s.wrote()[before:]; !slices.Equal(got, []int{1}) {
			t.Errorf("after a pause: writes of %v events, want one", got)
		}
	})
}

// TestDebouncedDeltasAreCollected: deltas whose quiet periods end one after another are in one
// batch, also if none came before.
func TestDebouncedDeltasAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{
			Sinks: to(s), Debounce: spec.Debounce{Quiet: time.Second}, Batch: spec.Batch{Size: 64, Wait: 10 * time.Millisecond},
		})
		for i := range 5 {
			b.admit(delta(t, event.Added, fmt.Sprint("o", i), 0, i+1))
			pass(time.Millisecond)
		}
		pass(time.Second + 4*time.Millisecond) // the first period ended 9 ms ago
		equal(t, "before batch.wait is over", s.got())
		pass(time.Millisecond)
		if got := s.wrote(); !slices.Equal(got, []int{5}) {
			t.Errorf("writes of %v events, want one", got)
		}
	})
}

// TestSavedObjectsDoNotWait: deltas that waited until their objects were on disk are delivered at
// once, however many other deltas wait meanwhile.
func TestSavedObjectsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 64, Wait: time.Second}})
		saved := make(chan struct{})
		for i := range 2 {
			d := delta(t, event.Added, fmt.Sprint("o", i), 0, i+1)
			transit.Of(d).Durable = saved
			b.admit(d)
			pass(time.Millisecond)
		}
		equal(t, "before they are saved", s.got())
		close(saved)
		synctest.Wait()
		got := s.got()
		slices.Sort(got)
		equal(t, "when they are saved", got, "added o0@1", "added o1@2")
	})
}

// TestEndlessDoNotWait: a delta waits until its object is on disk for those routes only that
// deliver the ends of objects. If there is none, the source need not write the object.
func TestEndlessDoNotWait(t *testing.T) {
	// Guarantee: delete-has-state
	synctest.Test(t, func(t *testing.T) {
		waits, does := &recordingSink{}, &recordingSink{}
		b := start(t, spec.Settings{Name: "waits", Sinks: []spec.NamedSink{out("waits", waits)}, Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
			return d.Key().Name == "both", nil
		})}, spec.Settings{Name: "does not", Sinks: []spec.NamedSink{out("does", does)}, Ops: []event.Op{event.Added, event.Updated, event.Sync}})
		saved := make(chan struct{})
		for i, name := range []string{"both", "one"} {
			d := delta(t, event.Added, name, 0, i+1)
			a, err := b.Admit(t.Context(), d)
			must.Succeed(t, err)
			state := transit.Of(d)
			if state.Endless != (name == "one") {
				t.Errorf("%s: endless is %t", name, state.Endless)
			}
			state.Durable = saved
			a.Commit()
		}
		synctest.Wait()
		equal(t, "before they are saved", waits.got())
		equal(t, "before they are saved", does.got(), "added both@1", "added one@2")
		close(saved)
		synctest.Wait()
		equal(t, "when they are saved", waits.got(), "added both@1")
	})
}

// TestConditionsAreEndless: the reports of a condition wait for its own state, so its objects need
// not be on disk before.
func TestConditionsAreEndless(t *testing.T) {
	// Guarantee: delete-has-state
	b := start(t, spec.Settings{When: spec.When{Filter: whenOn}, Ops: []event.Op{event.Entered, event.Left}, Sinks: to(&recordingSink{})})
	d := &event.Delta{Source: "pods", Op: event.Added, New: conditionObject(t, "a", "u", 1, true)}
	_, err := b.Admit(t.Context(), d)
	must.Succeed(t, err)
	if !transit.Of(d).Endless {
		t.Error("a new object of a condition waits for the disk")
	}
}
