package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// written formats the changes in the order of their numbers: "1 added a@1", with "s0" if that sink
// is done with it, "unseen" if the filter is not evaluated, "#2" if it was attempted twice, and
// "-1" if it is no longer pending.
func written(cuts []checkpoint.RouteCut) []string {
	list := []string{}
	for _, cut := range cuts {
		slices.SortFunc(cut.Put, func(a, b checkpoint.Pending) int { return int(a.ID) - int(b.ID) })
		for _, o := range cut.Put {
			line := fmt.Sprintf("%d %s %s@%s", o.ID, o.Delta.Op, o.Delta.Key().Name, o.Delta.Object().ResourceVersion())
			for _, name := range o.Closed {
				if name == "" {
					name = "unseen"
				}
				line += " " + name
			}
			if o.Attempts > 0 {
				line += fmt.Sprint(" #", o.Attempts)
			}
			list = append(list, line)
		}
		for _, number := range slices.Sorted(slices.Values(cut.Removed)) {
			list = append(list, fmt.Sprint("-", number))
		}
	}
	return list
}

func storedDeltas(k fakeStore) []string {
	var cuts []checkpoint.RouteCut
	for _, name := range slices.Sorted(maps.Keys(k)) {
		cuts = append(cuts, checkpoint.RouteCut{Put: k.pending(name)})
	}
	return written(cuts)
}

// startDurable is start with tracking.
func startDurable(t testing.TB, routes ...spec.Settings) *harness {
	t.Helper()
	b := openAs(t, pipeline.Config{Store: fakeStore{}}, routes...)
	b.Start(t.Context())
	return b
}

func (b *harness) dirty(what string, want ...string) {
	b.t.Helper()
	equal(b.t, what, written(b.Dirty()), want...)
}

func TestDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := startDurable(t, spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 2}}, spec.Settings{Sinks: to(nil, &recordingSink{})[1:], Batch: spec.Batch{Size: 1}})
		b.dirty("at first")
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2), delta(t, event.Added, "c", 0, 3))
		synctest.Wait() // two are with a worker, and the other route is done
		b.dirty("in the hands of a worker and waiting", "1 added a@1", "2 added b@2", "3 added c@3")
		b.dirty("nothing changed")
		b.admit(delta(t, event.Updated, "a", 1, 4))
		synctest.Wait()
		b.dirty("added", "4 updated a@4")
		b.admit(delta(t, event.Updated, "b", 2, 5))
		open()
		b.drain()
		b.dirty("all delivered, and the last came and went", "-1", "-2", "-3", "-4")
		b.dirty("nothing changed")
	})
}

// TestDirtyOfFoldedFailure: a delta that is coalesced with one whose filter failed counts as not
// evaluated, too.
func TestDirtyOfFoldedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := startDurable(t, spec.Settings{
			Sinks: to(s), Deliver: spec.Latest, Batch: spec.Batch{Size: 1},
			Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
				if d.Object().ResourceVersion() == "3" {
					return false, errDown
				}
				return true, nil
			}),
		})
		b.admit(delta(t, event.Added, "a", 0, 1))
		synctest.Wait()
		b.admit(delta(t, event.Updated, "a", 1, 2))
		b.dirty("it passed", "1 added a@1", "2 updated a@2")
		b.admit(delta(t, event.Updated, "a", 2, 3))
		b.dirty("the later state fails", "2 updated a@3 unseen")
		b.admit(delta(t, event.Updated, "a", 3, 4))
		b.dirty("the latest passes", "2 updated a@4")
		open()
		b.drain()
		equal(t, "sink", s.got(), "added a@1", "updated a@4")
	})
}

// TestDirtyOfSinks: the completion of a delta at a sink is handed over while the batch still waits
// for another sink, and so are attempts.
func TestDirtyOfSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, down := &recordingSink{}, true
		slow, open := blockingSink()
		slow.refuse = func(event.Event) error {
			if down {
				return errDown
			}
			return nil
		}
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, spec.Settings{Sinks: to(quick, slow)})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		b.Start(t.Context()) // with one batch
		pass(time.Second)
		b.dirty("the second sink hangs", "1 added a@1 s0", "2 added b@2 s0")
		open()
		synctest.Wait()
		b.dirty("the second sink failed")
		down = false
		b.drain()
		b.dirty("delivered", "-1", "-2")
		equal(t, "the first sink", quick.got(), "added a@1", "added b@2")
	})
}

func TestDirtyOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startDurable(t, spec.Settings{Sinks: to(&recordingSink{}), Retry: spec.Retry{Attempts: 9, Backoff: time.Second}, Handler: handleEach(func(*event.Delta) plugins.Result {
			return plugins.Result{Verdict: plugins.Retry, Err: errDown}
		})})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(100 * time.Millisecond)
		b.dirty("tried once", "1 added a@1 #1")
		pass(time.Second)
		b.dirty("tried twice", "1 added a@1 #2")
	})
}

func TestNothingIsTrackedUnlessAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, open := blockingSink()
		b := start(t, spec.Settings{Sinks: to(s)})
		b.admit(delta(t, event.Added, "a", 0, 1))
		synctest.Wait()
		b.dirty("not durable")
		open()
		b.drain()
		b.dirty("not durable")
	})
}

// TestDirtyBeforeLetters: while a dead letter is being written, the other events of the same write
// are recorded as delivered.
func TestDirtyBeforeLetters(t *testing.T) {
	// Guarantee: dead-letters-kept
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("never")
		s := &recordingSink{refuse: func(e event.Event) error {
			if e.K8sUID == "uid-bad" {
				return plugins.Reject(refused)
			}
			return nil
		}}
		k, written := fakeStore{}, make(chan struct{})
		b := openAs(t, pipeline.Config{Store: k}, spec.Settings{Name: "r", Sinks: to(s)})
		b.letters.refuse = func(checkpoint.Letter) error { <-written; return nil }
		b.admit(delta(t, event.Added, "bad", 0, 1), delta(t, event.Added, "good", 0, 2))
		b.Start(t.Context()) // with one batch
		pass(time.Second)
		k.write(t, b.Dirty())
		close(written)
		for _, o := range k.pending("r") {
			if good := o.Delta.Key().Name == "good"; slices.Contains(o.Closed, "s0") != good {
				t.Errorf("%s is closed at %q", o.Delta, o.Closed)
			}
		}
		if n := len(k.pending("r")); n != 2 {
			t.Errorf("%d are pending", n)
		}
		pass(time.Second)
	})
}
