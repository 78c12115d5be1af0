package pipeline_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestReminders: a sink that was unavailable gets only the last reminder, or, if it has not got the
// Entered yet, only that; also across a restart. Another condition of the object is reported by
// itself.
func TestReminders(t *testing.T) {
	// Guarantee: reminders
	synctest.Test(t, func(t *testing.T) {
		d := &flakyStore{fakeStore: fakeStore{}}
		var down atomic.Bool
		down.Store(true)
		s := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}
		r := spec.Settings{
			Name: "r", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Existing: true, Retry: spec.Retry{Max: time.Second},
			When: spec.When{
				Filter: whenOn, Version: "1", Every: time.Minute, Resource: resourceOf,
				Object: fakeCache(conditionObject(t, "a", "uid-a", 1, true)),
			},
		}
		hold := func(b *harness, minutes int) {
			t.Helper()
			for range minutes {
				d.cut(b)
				pass(time.Minute)
			}
			d.cut(b)
			pass(time.Second)
		}
		runOnce(t, d, r, func(b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true))
			hold(b, 8)
			if n := b.Pending("r"); n != 1 {
				t.Errorf("%d are pending, want that it holds", n)
			}
			down.Store(false)
			pass(time.Second)
			expectData(t, s, "entered a@1")
			hold(b, 1)
			down.Store(true)
			hold(b, 8)
			if n := b.Pending("r"); n != 1 {
				t.Errorf("%d are pending, want a reminder", n)
			}
		})
		runOnce(t, d, r, func(b *harness) {
			hold(b, 3)
			if n := b.Pending("r"); n != 1 {
				t.Errorf("%d are pending after a restart, want a reminder", n)
			}
			b.admit(conditionDelta(t, event.Updated, "a", 2, false), conditionDelta(t, event.Updated, "a", 3, true))
			hold(b, 2)
			s.events = nil
			down.Store(false)
			pass(time.Minute)
			got := s.data()
			if len(got) < 3 || got[1] != "left a@2" || got[2] != "entered a@3" {
				t.Errorf("reported %q", got)
			}
			b.balanced("r")
		})
	})
}
