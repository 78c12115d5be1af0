package pipeline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestConditionFormerSource: the reported conditions of a source that the route no longer has end
// with one left, by a reload and at a start. A source that comes back before the route has looked
// at all objects changes nothing.
func TestConditionFormerSource(t *testing.T) {
	// Guarantee: left-unseen
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(sources ...string) spec.Settings {
			r := spec.Settings{
				Name: "r", Sources: sources, Ops: edges, Handler: describingHandler, Sinks: to(s), Existing: true,
				When: spec.When{Filter: whenOn, Every: time.Hour, Resource: resourceOf},
			}
			for _, source := range sources {
				r.Version, r.When.Version = r.Version+source, r.When.Version+source
			}
			return r
		}
		of := func(source, name string, version int) *event.Delta {
			d := conditionDelta(t, event.Added, name, version, true)
			d.Source = source
			return d
		}
		b := openAs(t, pipeline.Config{Store: d}, route("pods", "nodes"))
		b.Start(t.Context())
		reported := func(want ...string) {
			t.Helper()
			d.cut(b)
			pass(time.Second)
			expectDataOfObjects(t, s, want...)
			s.events = nil
			d.cut(b)
		}
		b.admit(of("pods", "a", 1))
		reported("entered a@1")
		b.admit(of("nodes", "n", 2))
		reported("entered n@2")

		b.exchange(nil, route("pods"))
		b.exchange(nil, route("nodes", "pods"))
		rescanAll(t, b, true, of("pods", "a", 1), of("nodes", "n", 2))
		reported()
		b.exchange(nil, route("pods"))
		pass(2 * time.Hour)
		reported() // no reminder before the route has looked at all objects
		rescanAll(t, b, true, of("pods", "a", 1))
		reported("entered a@1 repeat 1", "left n@2")
		b.exchange(nil, route("machines")) // renamed
		rescanAll(t, b, true, of("machines", "a", 1))
		reported("entered a@1", "left a@1")
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		runOnce(t, d, route("pods"), func(restarted *harness) {
			if b = restarted; !b.NeedsRescan("r") {
				t.Error("other sources need a look at all objects")
			}
			rescanAll(t, b, true, of("pods", "a", 1))
			reported("entered a@1", "left a@")
		})
	})
}

// TestConditionShownAgain: a condition that ends because a changed configuration does not show its
// object, and begins because another one shows it again, has other ids than before, although the
// object has not changed. A receiver that drops duplicates must not drop them.
func TestConditionShownAgain(t *testing.T) {
	// Guarantee: left-unseen
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(version string) spec.Settings {
			return spec.Settings{
				Name: "r", Version: version, Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Existing: true,
				When: spec.When{Filter: whenOn, Version: version, Resource: resourceOf},
			}
		}
		b := openAs(t, pipeline.Config{Store: d}, route("wide"))
		b.Start(t.Context())
		initial := func() *event.Delta {
			d := conditionDelta(t, event.Added, "a", 1, true)
			d.Initial = true
			return d
		}
		reported := func() {
			d.cut(b)
			pass(time.Second)
			d.cut(b)
		}
		b.admit(initial())
		rescanAll(t, b, true, initial())
		reported()
		for range 2 {
			b.exchange(nil, route("narrow"))
			rescanAll(t, b, true)
			reported()
			b.exchange(nil, route("wide"))
			b.admit(initial())
			rescanAll(t, b, true, initial())
			reported()
		}
		expectDataOfObjects(t, s, "entered a@1", "entered a@1", "entered a@1", "left a@1", "left a@1")
		ids := make(map[string]bool)
		for _, e := range s.events {
			ids[e.ID] = true
		}
		if len(ids) != len(s.events) {
			t.Errorf("%d events have %d ids", len(s.events), len(ids))
		}
	})
}
