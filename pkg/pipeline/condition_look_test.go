package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

var whenever = filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return d.New != nil, nil })

// TestConditionChangedCrash: of a route that leaves out what is there at first the condition is changed by a reload, or with a restart. What it
// holds for now and did not before is told, also if there is a crash, with a cut before it or not, before all objects were looked at.
func TestConditionChangedCrash(t *testing.T) {
	for i := range 8 {
		reload, cut, removed := i&1 > 0, i&2 > 0, i&4 > 0
		t.Run(fmt.Sprintf("reload %v cut %v removed %v", reload, cut, removed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := &flakyDisk{disk: disk{}}, &sink{}
				route := func(when filters.Filter, version string) pipeline.Route {
					return pipeline.Route{
						Name: "r", Version: version, Sources: []string{"pods"}, Ops: edges, Handler: flags, Sinks: to(s), Known: version != "1",
						When: pipeline.When{Filter: when, Version: version, Resource: resourceOf, Object: lampCache(lamp(t, "a", "uid-a", 1, true))},
					}
				}
				life(t, d, route(whenOn, "1"), func(b *bench) {
					b.admit(lampDelta(t, event.Added, "a", 1, true), lampDelta(t, event.Added, "b", 2, false))
					d.cut(b)
					pass(time.Second)
					d.cut(b)
					expectData(t, s, "entered a@1")
					s.events = nil
					if !reload {
						return
					}
					exchange := func(r pipeline.Route) {
						c, err := b.Prepare([]pipeline.Route{r})
						if err != nil {
							t.Fatal(err)
						}
						c.Swap()
						c.Finish(t.Context())
					}
					if removed { // its condition is, and then it has another one
						plain := route(nil, "0")
						plain.When = pipeline.When{}
						exchange(plain)
					}
					exchange(route(whenever, "2"))
					if cut {
						d.cut(b)
					}
				})
				life(t, d, route(whenever, "2"), func(b *bench) {
					if !b.NeedsLook("r") {
						t.Error("it needs no look")
					}
					lookAt(t, b, true, lampDelta(t, event.Sync, "a", 1, true), lampDelta(t, event.Sync, "b", 2, false))
					d.cut(b)
					pass(time.Second)
					if reload && cut && removed { // it had no condition, so all of it was there before
						expectData(t, s)
						return
					}
					expectData(t, s, "entered b@2")
				})
			})
		})
	}
}

// TestConditionChangedEarly: the condition of a new route that leaves out what is there at first is changed before anybody has looked.
func TestConditionChangedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ready := &sink{}, make(chan struct{})
		route := func(version string) pipeline.Route {
			return pipeline.Route{
				Name: "r", Version: version, Sources: []string{"pods"}, Ops: edges, Handler: flags, Sinks: to(s), Ready: ready,
				When: pipeline.When{Filter: whenever, Version: version},
			}
		}
		b := start(t, route("1"))
		c, err := b.Prepare([]pipeline.Route{route("2")})
		if err != nil {
			t.Fatal(err)
		}
		c.Swap()
		c.Finish(t.Context())
		close(ready)
		lookAt(t, b, true, lampDelta(t, event.Sync, "a", 1, true))
		b.admit(lampDelta(t, event.Added, "b", 2, true))
		pass(time.Second)
		expectData(t, s, "entered b@2")
	})
}

// TestConditionMissed: of a route that was given nothing for a while all objects are looked at when it returns: the difference is told.
func TestConditionMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyDisk{disk: disk{}}, &sink{}
		route := pipeline.Route{Name: "r", Ops: edges, Handler: flags, Sinks: to(s), When: pipeline.When{Filter: whenOn, Version: "1", Resource: resourceOf}}
		life(t, d, route, func(b *bench) {
			b.admit(lampDelta(t, event.Added, "a", 1, true), lampDelta(t, event.Added, "b", 2, true))
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
		if !b.NeedsLook("r") {
			t.Error("it needs no look")
		}
		lookAt(t, b, true, lampDelta(t, event.Sync, "a", 3, false), lampDelta(t, event.Sync, "b", 2, true), lampDelta(t, event.Sync, "c", 4, true))
		d.cut(b)
		pass(time.Second)
		expectData(t, s, "left a@3", "entered c@4")
	})
}

// TestConditionKeyless: that it ended is told, though the object has no key that could be told any more.
func TestConditionKeyless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		b := start(t, pipeline.Route{Name: "r", Ops: edges, Handler: flags, Sinks: to(s), When: pipeline.When{Filter: whenOn}, Key: func(_ context.Context, d *event.Delta) (string, error) {
			if d.New == nil || !isOn(d.New) {
				return "", errDown
			}
			return "key", nil
		}})
		b.admit(lampDelta(t, event.Added, "a", 1, true), lampDelta(t, event.Updated, "a", 2, false))
		pass(time.Second)
		b.admit(lampDelta(t, event.Added, "b", 3, true), lampDelta(t, event.Deleted, "b", 3, true))
		pass(time.Second)
		expectData(t, s, "entered a@1", "left a@2", "entered b@3", "left b@3")
		if got := b.letters.got(); len(got) > 0 {
			t.Errorf("put aside: %q", got)
		}
	})
}
