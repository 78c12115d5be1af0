package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// conditional returns routes of two teams and one of the configuration, with their sinks.
func conditional(change func(r *spec.Settings)) (routes []spec.Settings, sinks map[string]*recordingSink) {
	sinks = map[string]*recordingSink{}
	for _, id := range []string{"team/a", "team/b", "other/a", "own"} {
		sinks[id] = &recordingSink{}
		r := spec.Settings{Name: id, ID: id, Sources: []string{"pods"}, Handler: describingHandler, Sinks: []spec.NamedSink{{Name: id, Sink: sinks[id]}}, Batch: spec.Batch{Size: 8}}
		change(&r)
		routes = append(routes, r)
	}
	return routes, sinks
}

const ofTeam10 = "the rules (when, for) of all routes of team track 10 objects, which is their share"

// TestOwnedConditions: the conditions of the routes of a team track as many objects together as the
// team may have. A further object is not reported, which is counted and shown, until it changes
// again when there is room. Other routes have their own objects.
func TestOwnedConditions(t *testing.T) {
	// Guarantee: conditions-owned
	synctest.Test(t, func(t *testing.T) {
		routes, sinks := conditional(func(r *spec.Settings) {
			r.Ops, r.Existing, r.When = edges, true, spec.When{Filter: whenOn, Version: "1", Resource: resourceOf}
		})
		b, k := startOn(t, pipeline.Config{OwnedObjects: 10}, routes...)
		admit := func(version, from, to int, on bool) {
			for i := from; i < to; i++ {
				b.admit(conditionDelta(t, event.Updated, fmt.Sprint("p", i), version+i, on))
			}
			k.cut(b)
			pass(2 * time.Second)
		}
		expect := func(when string, entered map[string]int) {
			t.Helper()
			for id, want := range entered {
				if n := len(only(sinks[id].data(), "entered")); n != want {
					t.Errorf("%s: %s has reported %d objects, want %d", when, id, n, want)
				}
			}
		}
		admit(100, 0, 8, true)
		expect("beyond the share", map[string]int{"team/a": 5, "team/b": 5, "other/a": 8, "own": 8})
		admit(200, 8, 20, true)
		expect("full", map[string]int{"team/a": 5, "team/b": 5, "other/a": 10, "own": 20})
		if n := b.value("route_errors_total", "team/a", "no_room"); n != 15 {
			t.Errorf("%v are counted", n)
		}
		if s := b.statusOf("team/a"); len(s.Lacks) != 1 || !strings.HasPrefix(s.Lacks[0], ofTeam10) {
			t.Errorf("the status says %q", s.Lacks)
		}
		if s := b.statusOf("own"); len(s.Lacks) != 0 {
			t.Errorf("the status of another route says %q", s.Lacks)
		}
		admit(300, 0, 3, false)
		if left := only(sinks["team/a"].data(), "left"); len(left) != 3 {
			t.Errorf("ended: %q", left)
		}
		admit(400, 5, 8, true)
		expect("there is room again", map[string]int{"team/a": 8, "team/b": 8, "other/a": 10, "own": 20})
		if n := b.letters.got(); len(n) != 0 {
			t.Errorf("dead letters: %q", n)
		}
	})
}

// TestOwnedHolds: the delete holds of the routes of a team count as its objects. A further delete
// becomes a dead letter with the reason. Beyond the bytes of the team only identities are held.
func TestOwnedHolds(t *testing.T) {
	// Guarantee: conditions-owned
	synctest.Test(t, func(t *testing.T) {
		routes, sinks := conditional(func(r *spec.Settings) {
			r.Ops, r.Hold, r.Capacity, r.Bytes = []event.Op{event.Deleted}, time.Hour, 1000, 1<<20
			r.Handler = handleEach(func(d *event.Delta) plugins.Result {
				text := "identity"
				if len(d.Old.JSON()) > 1000 {
					text = "whole"
				}
				return plugins.Result{Events: []plugins.Emit{{Data: []byte(text)}}}
			})
		})
		b, k := startOn(t, pipeline.Config{OwnedObjects: 10, OwnedMemory: 7000}, routes...)
		pad := strings.Repeat("x", 1000)
		for i := range 8 {
			o, err := event.ParseObject(pods, fmt.Sprintf(`{"metadata":{"namespace":"default","name":"p%d","uid":"u%d","resourceVersion":"%d"},"spec":{"pad":%q}}`, i, i, 100+i, pad))
			must.Succeed(t, err)
			b.admit(&event.Delta{Source: "pods", Op: event.Deleted, Old: o, Seen: time.Now()})
		}
		k.cut(b)
		pass(2 * time.Second)
		if letters := b.letters.got(); len(letters) != 6 || !strings.Contains(b.letters.all[0].Error, ofTeam10) {
			t.Errorf("%d dead letters: %q", len(letters), letters)
		}
		if s := b.statusOf("team/b"); len(s.Lacks) != 1 {
			t.Errorf("the status says %q", s.Lacks)
		}
		pass(time.Hour)
		whole := func(id string) int { return len(only(sinks[id].data(), "whole")) }
		for id, want := range map[string]int{"team/a": 5, "team/b": 5, "other/a": 8, "own": 8} {
			if got := sinks[id].data(); len(got) != want {
				t.Errorf("%s has reported %q, want %d", id, got, want)
			}
		}
		if n := whole("team/a") + whole("team/b"); n < 6 || n > 7 {
			t.Errorf("the team has held %d objects", n)
		}
		if n := whole("own"); n != 8 {
			t.Errorf("a route without an owner has held %d objects", n)
		}
		if len(b.letters.got()) != 6 {
			t.Error("there are further dead letters")
		}
	})
}
