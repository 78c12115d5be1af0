package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

var whenever = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.New != nil, nil })

// TestConditionChangedCrash: the condition of a route that ignores existing objects is changed by a
// reload or with a restart. The objects for which it newly holds are reported, even after a crash
// before the rescan, with or without a cut.
func TestConditionChangedCrash(t *testing.T) {
	// Guarantee: conditions-reconfigured
	for i := range 8 {
		reload, cut, removed := i&1 > 0, i&2 > 0, i&4 > 0
		t.Run(fmt.Sprintf("reload %v cut %v removed %v", reload, cut, removed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
				route := func(when filters.Filter, version string) spec.Settings {
					return spec.Settings{
						Name: "r", Version: version, Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Known: version != "1",
						When: spec.When{Filter: when, Version: version, Resource: resourceOf, Object: fakeCache(conditionObject(t, "a", "uid-a", 1, true))},
					}
				}
				runOnce(t, d, route(whenOn, "1"), func(b *harness) {
					b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, false))
					d.cut(b)
					pass(time.Second)
					d.cut(b)
					expectData(t, s, "entered a@1")
					s.events = nil
					if !reload {
						return
					}
					exchange := func(r spec.Settings) {
						c, err := b.Prepare([]spec.Settings{r})
						if err != nil {
							t.Fatal(err)
						}
						c.Swap()
						c.Finish(t.Context())
					}
					if removed { // the condition is removed, and later replaced by another one
						plain := route(nil, "0")
						plain.When = spec.When{}
						exchange(plain)
					}
					exchange(route(whenever, "2"))
					if cut {
						d.cut(b)
					}
				})
				runOnce(t, d, route(whenever, "2"), func(b *harness) {
					if !b.NeedsRescan("r") {
						t.Error("it needs no look")
					}
					rescanAll(t, b, true, conditionDelta(t, event.Sync, "a", 1, true), conditionDelta(t, event.Sync, "b", 2, false))
					d.cut(b)
					pass(time.Second)
					// it had no condition, so all objects existed before
					if reload && cut && removed {
						expectData(t, s)
						return
					}
					expectData(t, s, "entered b@2")
				})
			})
		})
	}
}

// TestConditionChangedEarly: the condition of a new route that ignores existing objects is changed
// before its first rescan.
func TestConditionChangedEarly(t *testing.T) {
	// Guarantee: conditions-reconfigured
	synctest.Test(t, func(t *testing.T) {
		s, ready := &recordingSink{}, make(chan struct{})
		route := func(version string) spec.Settings {
			return spec.Settings{
				Name: "r", Version: version, Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Ready: ready,
				When: spec.When{Filter: whenever, Version: version},
			}
		}
		b := start(t, route("1"))
		c, err := b.Prepare([]spec.Settings{route("2")})
		if err != nil {
			t.Fatal(err)
		}
		c.Swap()
		c.Finish(t.Context())
		close(ready)
		rescanAll(t, b, true, conditionDelta(t, event.Sync, "a", 1, true))
		b.admit(conditionDelta(t, event.Added, "b", 2, true))
		pass(time.Second)
		expectData(t, s, "entered b@2")
	})
}

// TestConditionMissed: a route that was absent for a while is rescanned when it returns: the
// differences are reported.
func TestConditionMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), When: spec.When{Filter: whenOn, Version: "1", Resource: resourceOf}}
		runOnce(t, d, route, func(b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, true))
			d.cut(b)
			pass(time.Second)
			d.cut(b)
			s.events = nil
		})
		b := openAs(t, pipeline.Config{Store: d}, route)
		if err := b.RestoreRules("r", pipeline.Missed(d.known("r"))); err != nil {
			t.Fatal(err)
		}
		b.Start(t.Context())
		if !b.NeedsRescan("r") {
			t.Error("it needs no look")
		}
		rescanAll(t, b, true, conditionDelta(t, event.Sync, "a", 3, false), conditionDelta(t, event.Sync, "b", 2, true), conditionDelta(t, event.Sync, "c", 4, true))
		d.cut(b)
		pass(time.Second)
		expectDataOfObjects(t, s, "entered c@4", "left a@3")
	})
}

// TestConditionKeyless: the end of a condition is reported, even if the object has no key any more.
func TestConditionKeyless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), When: spec.When{Filter: whenOn}, Key: func(_ context.Context, d *event.Delta) (string, error) {
			if d.New == nil || !isOn(d.New) {
				return "", errDown
			}
			return "key", nil
		}})
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Updated, "a", 2, false))
		pass(time.Second)
		b.admit(conditionDelta(t, event.Added, "b", 3, true), conditionDelta(t, event.Deleted, "b", 3, true))
		pass(time.Second)
		expectData(t, s, "entered a@1", "left a@2", "entered b@3", "left b@3")
		if got := b.letters.got(); len(got) > 0 {
			t.Errorf("dead letters: %q", got)
		}
	})
}

// TestConditionEndKeepsOrder: an end that a rescan finds is reported in the order of the route's
// key, or of the key of its limit, by the last known object.
func TestConditionEndKeepsOrder(t *testing.T) {
	owner := func(context.Context, *event.Delta) (string, error) { return "team-a", nil }
	for name, route := range map[string]spec.Settings{
		"a key":              {Key: owner},
		"the key of a limit": {Limit: spec.Limit{Every: time.Minute, Burst: 10, Key: owner}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &recordingSink{}
				route.Name, route.Ops, route.Handler, route.Sinks, route.When = "r", edges, describingHandler, to(s), spec.When{Filter: whenOn}
				b := start(t, route)
				b.admit(conditionDelta(t, event.Added, "a", 1, true))
				pass(time.Second)
				rescanAll(t, b, true)
				pass(time.Second)
				expectData(t, s, "entered a@1", "left a@1")
				for _, e := range s.events {
					if e.OrderKey() != "team-a" {
						t.Errorf("%s is ordered by %q", e.Data, e.OrderKey())
					}
				}
			})
		})
	}
}
