package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestSinkPausesARoute: a sink can stop a route whatever its onFailure is. The route owes what was not delivered, nothing of it is a
// dead letter or dropped however old it becomes, and another route of the same sink goes on.
func TestSinkPausesARoute(t *testing.T) {
	for name, onFailure := range map[string]pipeline.OnFailure{"deadLetter": pipeline.DeadLetter, "drop": pipeline.Drop, "pause": pipeline.Pause} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				s := &sink{refuse: func(e event.Event) error {
					if e.Route == "route0" && e.Subject != "default/a" {
						asked++
						return plugins.Pause(errors.New("too much of it"))
					}
					return nil
				}}
				b := start(t, pipeline.Route{Sinks: to(s), OnFailure: onFailure}, pipeline.Route{Sinks: to(s)})
				b.admit(delta(t, event.Added, "a", 0, 1))
				pass(time.Minute)
				b.admit(delta(t, event.Added, "b", 0, 2))
				pass(48 * time.Hour)
				b.admit(delta(t, event.Added, "c", 0, 3))
				pass(time.Hour)
				equal(t, "delivered", s.got(), "added a@1", "added a@1", "added b@2", "added c@3")
				equal(t, "dead letters", b.letters.got())
				status := b.Status()[0]
				if status.Owed != 2 || asked != 1 || !strings.Contains(status.Paused, "added pods default/b") || !strings.Contains(status.Paused, "too much of it") {
					t.Errorf("asked %d times, %+v", asked, status)
				}
				if b.value("route_paused", "route0") != 1 || b.value("route_paused", "route1") != 0 {
					t.Error("the metric says something else")
				}
				if b.Status()[1].Paused != "" || b.value("route_deltas_total", "route1", metrics.Delivered) != 3 {
					t.Errorf("the other route: %+v", b.Status()[1])
				}
			})
		})
	}
}

// TestSinkPostponesAnEvent: an event that a sink postpones waits as long as it says, and neither its breaker nor others wait with it.
func TestSinkPostponesAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		s := &sink{refuse: func(e event.Event) error {
			if e.Subject == "default/a" && time.Since(began) < time.Hour {
				asked++
				return plugins.Postpone(errors.New("not yet"), 10*time.Minute)
			}
			return nil
		}}
		b := start(t, pipeline.Route{Sinks: to(s), Batch: pipeline.Batch{Size: 1}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		for version := 2; version < 12; version++ {
			b.admit(delta(t, event.Added, string(rune('a'+version)), 0, version))
			pass(time.Second)
			if n := len(s.got()); n != version-1 {
				t.Fatalf("%d were delivered after %d", n, version-1)
			}
		}
		pass(2 * time.Hour)
		if got := s.got(); len(got) != 11 || got[10] != "added a@1" || asked < 5 || asked > 7 {
			t.Errorf("asked %d times, delivered %q", asked, got)
		}
		equal(t, "dead letters", b.letters.got())
	})
}
