package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestSinkPausesARoute: a sink can pause a route regardless of its onFailure. Undelivered deltas
// stay pending; none becomes a dead letter or is dropped at any age, and another route of the same
// sink continues.
func TestSinkPausesARoute(t *testing.T) {
	// Guarantee: kubernetes-limits
	for name, onFailure := range map[string]spec.OnFailure{"deadLetter": spec.DeadLetter, "drop": spec.Drop, "pause": spec.Pause} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				s := &recordingSink{refuse: func(e event.Event) error {
					if e.Route == "route0" && e.Subject != "default/a" {
						calls++
						return plugins.Pause(errors.New("too much of it"))
					}
					return nil
				}}
				b := start(t, spec.Settings{Sinks: to(s), OnFailure: onFailure}, spec.Settings{Sinks: to(s)})
				b.admit(delta(t, event.Added, "a", 0, 1))
				pass(time.Minute)
				b.admit(delta(t, event.Added, "b", 0, 2))
				pass(48 * time.Hour)
				b.admit(delta(t, event.Added, "c", 0, 3))
				pass(time.Hour)
				equal(t, "delivered", s.got(), "added a@1", "added a@1", "added b@2", "added c@3")
				equal(t, "dead letters", b.letters.got())
				status := b.Status()[0]
				if status.Pending != 2 || calls != 1 || !strings.Contains(status.Paused, "added pods default/b") || !strings.Contains(status.Paused, "too much of it") {
					t.Errorf("%d calls, %+v", calls, status)
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

// countingSink pauses a route after two events.
type countingSink struct {
	recordingSink

	counted atomic.Int32
	resumed []string
}

func (s *countingSink) Write(ctx context.Context, events []event.Event) []error {
	if s.counted.Add(1) > 2 {
		return slices.Repeat([]error{plugins.Pause(errors.New("too much of it"))}, len(events))
	}
	return s.recordingSink.Write(ctx, events)
}

// Resume implements plugins.Resumer.
func (s *countingSink) Resume(route string) {
	s.counted.Store(0)
	s.resumed = append(s.resumed, route)
}

// TestPauseAcrossRestarts: a route that a sink has paused is still paused after a restart, until it
// is resumed or changed; a pause by onFailure ends with the restart.
func TestPauseAcrossRestarts(t *testing.T) {
	// Guarantee: kubernetes-limits-kept
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &countingSink{}
		r := spec.Settings{Name: "r", Version: "1", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(s), Concurrency: 1, Batch: spec.Batch{Size: 1}}
		runOnce(t, d, r, func(b *harness) {
			if err := b.Resume("r"); !errors.Is(err, pipeline.ErrNotPaused) {
				t.Errorf("error is %v", err)
			}
			for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
				b.admit(delta(t, event.Added, name, 0, i+1))
			}
			pass(time.Minute)
			d.cut(b)
		})
		s.counted.Store(0) // as if the sink had lost its count
		runOnce(t, d, r, func(b *harness) {
			pass(24 * time.Hour)
			equal(t, "before it is resumed", s.got(), "added a@1", "added b@2")
			if status := b.Status()[0]; status.Pending != 4 || !strings.Contains(status.Paused, "too much of it") || b.value("route_paused", "r") != 1 {
				t.Errorf("%+v", status)
			}
			if err := b.Resume("x"); !errors.Is(err, pipeline.ErrNoRoute) {
				t.Errorf("error is %v", err)
			}
			if err := b.Resume("r"); err != nil {
				t.Error(err)
			}
			pass(time.Minute)
			equal(t, "resumed", s.resumed, "r")
			equal(t, "after it was resumed", s.got(), "added a@1", "added b@2", "added c@3", "added d@4")
			d.cut(b)
		})
		runOnce(t, d, r, func(b *harness) { // paused again
			pass(time.Minute)
			s.counted.Store(0)
			changed := r
			changed.Version = "2"
			change, err := b.Prepare([]spec.Settings{changed})
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			change.Finish(t.Context())
			pass(time.Minute)
			equal(t, "after a change", s.got()[4:], "added e@5", "added f@6")
			d.cut(b)
		})
		runOnce(t, d, r, func(b *harness) {
			if status := b.Status()[0]; status.Paused != "" || len(d.rules["r"]) > 0 {
				t.Errorf("%+v; %v is on disk", status, d.rules["r"])
			}
		})
	})
}

// TestPauseByUser: a route that a request has paused delivers nothing until its time or until it is
// resumed, across restarts and changes of the configuration. A pause of another cause stays.
func TestPauseByUser(t *testing.T) {
	// Guarantee: pause-by-user
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		r := spec.Settings{Name: "r", Version: "1", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(s), Concurrency: 1, Batch: spec.Batch{Size: 1}}
		until := time.Now().Add(2 * time.Hour)
		paused := func(b *harness, want string) {
			t.Helper()
			if got := b.Status()[0].Paused; got != want || b.value("route_paused", "r") != map[bool]float64{true: 1}[want != ""] {
				t.Errorf("paused: %q, want %q", got, want)
			}
		}
		runOnce(t, d, r, func(b *harness) {
			if err := b.Pause("x", until); !errors.Is(err, pipeline.ErrNoRoute) {
				t.Errorf("error is %v", err)
			}
			must.Succeed(t, b.Pause("r", time.Time{}))
			must.Succeed(t, b.Pause("r", until))
			pass(time.Minute)
			paused(b, "on a request, until "+until.UTC().Format(time.RFC3339))
			b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
			pass(time.Hour - time.Minute)
			equal(t, "while it is paused", s.got())
			d.cut(b)
		})
		runOnce(t, d, r, func(b *harness) {
			changed := r
			changed.Version = "2"
			change, err := b.Prepare([]spec.Settings{changed})
			must.Succeed(t, err)
			change.Swap()
			change.Finish(t.Context())
			pass(time.Hour - time.Second)
			equal(t, "a second before the end", s.got())
			pass(time.Minute)
			equal(t, "after the end", s.got(), "added a@1", "added b@2")
			paused(b, "")
			must.Succeed(t, b.Pause("r", time.Time{}))
			b.admit(delta(t, event.Added, "c", 0, 3))
			pass(24 * time.Hour)
			d.cut(b)
		})
		runOnce(t, d, r, func(b *harness) {
			pass(time.Hour)
			paused(b, "on a request, until router resume")
			must.Succeed(t, b.Resume("r"))
			pass(time.Minute)
			equal(t, "after it was resumed", s.got()[2:], "added c@3")
			d.cut(b)
			if len(d.rules["r"]) > 0 {
				t.Errorf("%v is on disk", d.rules["r"])
			}
		})
	})
}

// TestPauseOfAnotherCause: a request does not replace a pause by a failure, which says more.
func TestPauseOfAnotherCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &recordingSink{refuse: func(event.Event) error { return plugins.Reject(errDown) }}
		r := spec.Settings{Name: "r", Sinks: to(bad), OnFailure: spec.Pause}
		b := start(t, r)
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Minute)
		must.Fail(t, b.Pause("r", time.Time{}), "the route is paused already: added pods default/a")
	})
}

// TestSinkPostponesAnEvent: an event that a sink postpones waits for the delay that the sink
// requests, without an effect on the breaker or on other events.
func TestSinkPostponesAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		s := &recordingSink{refuse: func(e event.Event) error {
			if e.Subject == "default/a" && time.Since(began) < time.Hour {
				calls++
				return plugins.Postpone(errors.New("not yet"), 10*time.Minute)
			}
			return nil
		}}
		b := start(t, spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 1}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		for version := 2; version < 12; version++ {
			b.admit(delta(t, event.Added, string(rune('a'+version)), 0, version))
			pass(time.Second)
			if n := len(s.got()); n != version-1 {
				t.Fatalf("%d were delivered after %d", n, version-1)
			}
		}
		pass(2 * time.Hour)
		if got := s.got(); len(got) != 11 || got[10] != "added a@1" || calls < 5 || calls > 7 {
			t.Errorf("%d calls, delivered %q", calls, got)
		}
		equal(t, "dead letters", b.letters.got())
	})
}
