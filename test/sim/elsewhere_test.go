package sim_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/informer"
)

// Faults of other routers, with one test for each: docs/GUARANTEES.md lists them.

// plain is a route with default settings.
func plain(name string, sinks ...string) *route {
	return &route{
		names: []string{name}, from: "pods", sinks: sinks, overflow: "coalesce", memory: 1000, disk: "0", batch: 64, concurrency: 2, onFailure: "deadLetter",
		since: unknown,
	}
}

// script runs a written schedule. It begins in a healthy and saved state, and ends with the checks
// of the simulation.
func script(t *testing.T, play func(w *world), routes ...*route) {
	t.Helper()
	t.Cleanup(informer.QuietKlog(slog.New(slog.DiscardHandler)))
	dir, c := folder(t), newCluster()
	w := &world{
		c: c, r: newReceiver(c), disk: &disk{}, dir: filepath.Join(dir, "state"), file: filepath.Join(dir, "config.yaml"),
		routes: routes, listed: -1,
	}
	synctest.Test(t, func(*testing.T) {
		w.begin()
		w.calm()
		play(w)
		w.end()
	})
	if len(w.failed) == 0 {
		w.check()
	}
	for _, problem := range w.failed {
		t.Error(problem)
	}
}

// told returns the deliveries of a route to a sink in the form "added a".
func (w *world) told(route, sink string) (all []string) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	for _, d := range w.r.log {
		if d.route == route && d.sink == sink {
			all = append(all, d.op+" "+d.name)
		}
	}
	return all
}

// want fails unless a sink got exactly these deliveries, in the order of each object: there is no
// order across objects.
func (w *world) want(route, sink string, want ...string) {
	byName := func(a, b string) int { return strings.Compare(a[len(a)-1:], b[len(b)-1:]) }
	got := w.told(route, sink)
	slices.SortStableFunc(got, byName)
	slices.SortStableFunc(want, byName)
	if !slices.Equal(got, want) {
		w.fail("route %s told %s %v, want %v", route, sink, got, want)
	}
}

// gap makes changes that no watch will report.
func (w *world) gap(happens func()) {
	w.c.setDown(true)
	happens()
	w.c.compact()
	w.c.setDown(false)
}

// Another router saved the position of the watch although a sink had refused an earlier event.
func TestCheckpointDoesNotPassARejectedEvent(t *testing.T) {
	// Guarantee: position-past-refusal
	script(t, func(w *world) {
		w.r.set("a", refusing)
		w.c.happen("a", update, false)
		w.pass(5 * time.Second) // cuts
		w.crash()
		w.begin()
		w.pass(5 * time.Second)
		w.stop()
		w.settle()
		w.want("r", "a", "added a")
	}, plain("r", "a"))
}

// Another router saved the position under the name of the resource alone, so that two watches of it
// overwrote each other's position.
func TestCheckpointKeyHasGroupAndSelector(t *testing.T) {
	// Guarantee: position-by-name
	spec := func(change func(s *informer.Spec)) string {
		s := informer.Spec{Cache: "full"}
		s.Resource.Version, s.Resource.Resource = "v1", "pods"
		change(&s)
		return s.ID()
	}
	ids := []string{
		spec(func(*informer.Spec) {}),
		spec(func(s *informer.Spec) { s.Resource.Group = "metrics.k8s.io" }),
		spec(func(s *informer.Spec) { s.Resource.Version = "v2" }),
		spec(func(s *informer.Spec) { s.Namespace = "default" }),
		spec(func(s *informer.Spec) { s.LabelSelector = "app=web" }),
		spec(func(s *informer.Spec) { s.FieldSelector = "app=web" }),
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 6 {
		t.Errorf("%d of 6 watches have a place of their own", n)
	}
	web := plain("web", "b")
	web.from = "web"
	script(t, func(w *world) {
		w.c.happen("a", update, false)
		w.pass(2 * time.Second)
		w.stop()
		w.c.happen("b", update, true)
		w.c.happen("a", update, false)
		w.settle()
		w.want("all", "a", "added a", "added b", "updated a")
		w.want("web", "b", "added b")
	}, plain("all", "a"), web)
}

// Another router accepted a list after a gap silently: changes and deletes in the gap were never
// delivered.
func TestRelistIsNotSkipped(t *testing.T) {
	// Guarantee: list-without-changes
	script(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.c.happen(name, update, false)
			w.pass(time.Second)
		}
		w.gap(func() {
			w.c.happen("a", remove, false)
			w.c.happen("b", update, false)
		})
		w.settle()
		w.want("r", "a", "added a", "added b", "added c", "deleted a", "updated b")
	}, plain("r", "a"))
}

// Another router discarded the saved position after 410 Gone at its start, and with it all changes
// in between.
func TestExpiredCheckpointIsNotThrownAway(t *testing.T) {
	// Guarantee: gap-forgets-position
	script(t, func(w *world) {
		w.c.happen("a", update, false)
		w.pass(time.Second)
		w.c.happen("b", update, false)
		w.settle()
		w.stop()
		w.c.happen("a", remove, false)
		w.c.happen("b", update, false)
		w.c.compact()
		w.settle()
		w.want("r", "a", "added a", "added b", "deleted a", "updated b")
	}, plain("r", "a"))
}

// In another router a delete that was found in a list had a different form, and a filter dropped
// it.
func TestFilterDoesNotDropATombstone(t *testing.T) {
	// Guarantee: tombstones
	r := plain("r", "a")
	r.filter = true
	script(t, func(w *world) {
		w.c.happen("a", update, false)
		w.c.happen("c", update, false)
		w.pass(time.Second)
		w.gap(func() {
			w.c.happen("a", remove, false)
			w.c.happen("c", remove, false)
		})
		w.settle()
		w.want("r", "a", "added a", "deleted a")
	}, r)
}

// A filter or expression that read a field did not get the delete of an object that was deleted
// after a crash, because only its identity had been saved before its first delivery.
func TestFilterGetsADeleteAfterACrash(t *testing.T) {
	// Guarantee: delete-has-state
	for name, becomes := range map[string]func(w *world){
		"new": func(w *world) { w.c.happen("a", update, true) },
		"new, and wanted later": func(w *world) {
			w.c.happen("a", update, false)
			w.pass(50 * time.Millisecond)
			w.c.happen("a", relabel, false)
		},
		"saved, and wanted later": func(w *world) {
			w.c.happen("a", update, false)
			for made := time.Now(); !w.l.savedAfter(made); {
				w.pass(10 * time.Millisecond)
			}
			w.c.happen("a", relabel, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := plain("r", "a")
			r.rule = `object.metadata.labels.app == "web"`
			script(t, func(w *world) {
				becomes(w)
				wanted := time.Now()
				w.pass(50 * time.Millisecond)
				if w.l.savedAfter(wanted) {
					w.fail("a cut came between")
				}
				w.crash()
				w.gap(func() { w.c.happen("a", remove, false) })
				w.settle()
				all := w.told("r", "a")
				if len(all) != 2 || all[1] != "deleted a" {
					w.fail("told %v", all)
				}
			}, r, plain("plain", "b"))
		})
	}
}

// Another router logged a rule that failed on an object, and treated the object as no match.
func TestFilterErrorIsNotNoMatch(t *testing.T) {
	// Guarantee: failed-rule-no-match
	r := plain("r", "a")
	r.rule = `1 / (size(object.metadata.name) - 1) == 1` // fails for a name of one letter
	script(t, func(w *world) {
		w.c.happen("a", update, false)
		w.settle()
		w.want("r", "a")
		w.letters = []rejection{{"r", "", 1, "added"}}
	}, r)
}

// In another router a handler that trapped lost the event.
func TestTrapDoesNotLoseTheEvent(t *testing.T) {
	// Guarantee: trap-loses-event
	r := plain("r", "a")
	r.handler = "h"
	script(t, func(w *world) {
		w.r.set("h", panicing) // for the third object
		for _, name := range []string{"a", "b", "c", "d"} {
			w.c.happen(name, update, false)
		}
		w.pass(5 * time.Second)
		if got := w.told("r", "a"); !slices.Contains(got, "added d") || slices.Contains(got, "added c") {
			w.fail("%v came", got)
		}
		w.letters = []rejection{{"r", "", 3, "added"}}
	}, r)
}

// Another router reported an object with a growing count only once, since it knew the uid.
func TestGrowingCountIsNoDuplicate(t *testing.T) {
	// Guarantee: count-as-duplicate
	script(t, func(w *world) {
		for range 4 {
			w.c.happen("a", update, false)
			w.pass(100 * time.Millisecond)
		}
		w.want("r", "a", "added a", "updated a", "updated a", "updated a")
	}, plain("r", "a"))
}

// Another router ignored events that were older than some seconds or than the start of the process.
func TestNothingIsTooOld(t *testing.T) {
	// Guarantee: old-ignored
	script(t, func(w *world) {
		w.stop()
		w.c.happen("a", update, false)
		w.pass(72 * time.Hour)
		w.settle()
		w.want("r", "a", "added a")
	}, plain("r", "a"))
}

// In another router a hanging sink stopped the watch, and so all other routes.
func TestSlowSinkDoesNotStallTheWatch(t *testing.T) {
	// Guarantee: sink-holds-watch
	script(t, func(w *world) {
		w.r.set("a", blocked)
		var want []string
		for i := range 20 {
			w.c.happen("a", update, false)
			w.pass(50 * time.Millisecond)
			want = append(want, map[bool]string{true: "added a", false: "updated a"}[i == 0])
		}
		w.want("fast", "b", want...)
		w.want("stuck", "a")
	}, plain("stuck", "a"), plain("fast", "b"))
}

// In another router one failed event made all earlier events repeat.
func TestFailureDoesNotReplayTheBacklog(t *testing.T) {
	// Guarantee: failure-repeats-backlog
	script(t, func(w *world) {
		w.r.set("a", poisoned) // for events about the third object
		for range 3 {
			for _, name := range []string{"a", "b", "c", "d"} {
				w.c.happen(name, update, false)
			}
		}
		w.pass(5 * time.Second)
		got := w.told("r", "a")
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != "added a, added b, added d, updated a, updated a, updated b, updated b, updated d, updated d" {
			w.fail("came %s", text)
		}
	}, plain("r", "a"))
}

// Another router lost its dead letters in a restart.
func TestDeadLettersDoNotEndWithTheProcess(t *testing.T) {
	// Guarantee: dead-letters-end
	script(t, func(w *world) {
		w.r.set("a", poisoned)
		for _, name := range []string{"a", "b", "c"} {
			w.c.happen(name, update, false)
		}
		w.pass(5 * time.Second)
		w.crash()
		w.letters = []rejection{{"r", "a", 3, "added"}}
	}, plain("r", "a"))
}

// Another router repeated everything after a restart without changes.
func TestRestartIsNoFlood(t *testing.T) {
	// Guarantee: restart-flood
	script(t, func(w *world) {
		for i := range 4 {
			w.c.happen(nameOf(i), update, false)
		}
		w.quiet()
		w.quiet()
		if got := w.told("r", "a"); len(got) != 4 {
			w.fail("%d deliveries: %s", len(got), fmt.Sprint(got))
		}
	}, plain("r", "a"))
}
