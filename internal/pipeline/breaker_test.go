package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

func TestRetryAfter(t *testing.T) {
	// Guarantee: sink-unavailable
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		s := &recordingSink{refuse: func(event.Event) error {
			if at = append(at, time.Now()); len(at) == 1 {
				return plugins.RetryLater(errDown, 10*time.Minute)
			}
			return nil
		}}
		b := start(t, spec.Settings{Sinks: to(s)})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Hour)
		if len(at) != 2 || at[1].Sub(at[0]) < 10*time.Minute || at[1].Sub(at[0]) > 11*time.Minute {
			t.Errorf("tried at %v", at)
		}
	})
}

// TestBreaker: an unavailable sink is probed now and then with a single delta by all its routes
// together, not with each delta. No delta is lost, and pending deltas can be coalesced.
func TestBreaker(t *testing.T) {
	// Guarantee: sink-unavailable
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		other := &recordingSink{}
		s := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}
		retry := spec.Retry{Backoff: 200 * time.Millisecond, Max: 30 * time.Second}
		b := start(t,
			spec.Settings{Sinks: to(s), Retry: retry, Deliver: spec.Latest, Concurrency: 4},
			spec.Settings{Sinks: to(s), Retry: retry, Concurrency: 4},
			spec.Settings{Sinks: to(nil, other)[1:]},
		)
		version := 1
		for range 600 { // an hour
			for _, name := range []string{"a", "b", "c", "d"} {
				b.admit(delta(t, event.Updated, name, version, version+1))
				version++
			}
			pass(6 * time.Second)
		}
		if n := len(s.wrote()); n < 100 || n > 300 {
			t.Errorf("%d writes in an hour, want about one each 15s to 30s", n)
		}
		for i, n := range s.wrote()[10:] {
			if n != 1 {
				t.Fatalf("probe %d had %d events", i, n)
			}
		}
		if n := len(other.got()); n != 2400 {
			t.Errorf("the other sink got %d events, want 2400", n)
		}
		down.Store(false)
		pass(time.Minute)
		if pending := b.Pending("route0") + b.Pending("route1"); pending > 0 {
			t.Errorf("%d pending a minute after the sink came back", pending)
		}
		if n := b.value("route_deltas_total", "route0", metrics.Delivered); n > 8 {
			t.Errorf("route0 delivered %v deltas of 4 objects: coalesced too few", n)
		}
		if n := b.value("route_deltas_total", "route1", metrics.Delivered); n != 2400 {
			t.Errorf("route1 delivered %v, want 2400", n)
		}
		b.balanced("route0")
		b.balanced("route1")
	})
}

// TestBreakersOfOneConnection: sinks of routes that share a connection become unavailable with one
// line, which names their routes, and so does what each pipeline of a route says.
func TestBreakersOfOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		complain := complaints.New(slog.New(slog.NewTextHandler(&log, nil)))
		var all []*harness
		for range 2 {
			var routes []spec.Settings
			for i := range 8 {
				sinks := to(&recordingSink{refuse: func(event.Event) error { return errDown }})
				sinks[0].Name, sinks[0].Of = "fleet/workers", fmt.Sprint("route", i)
				sinks[0].Version = sinks[0].Of
				routes = append(routes, spec.Settings{Sinks: sinks})
			}
			all = append(all, openAs(t, pipeline.Config{Complaints: complain}, routes...))
		}
		for _, b := range all {
			b.Start(t.Context())
			b.admit(delta(t, event.Added, "a", 0, 1))
		}
		pass(10 * time.Second)
		complain.Close()
		text := log.String()
		if n := strings.Count(text, "\n"); n != 2 || !strings.Contains(text, "times=15") || !strings.Contains(text, "route0, route1, route2, route3, route4, route5, route6, route7") {
			t.Errorf("%d lines:\n%s", n, text)
		}
	})
}

// TestSinkBreaksItsContract: a sink that panics or returns a wrong number of results counts as
// unavailable.
func TestSinkBreaksItsContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := &malformedSink{}, &brokenCalls{}
		s.calls = calls
		b := start(t, spec.Settings{Sinks: to(s)})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		b.drain()
		if n := b.value("route_events_total", "route0", "delivered"); n != 2 || calls.n < 3 {
			t.Errorf("%v delivered in %d calls", n, calls.n)
		}
		b.balanced("route0")
	})
}

type brokenCalls struct{ n int }

type malformedSink struct{ calls *brokenCalls }

func (s *malformedSink) Write(context.Context, []event.Event) []error {
	switch s.calls.n++; s.calls.n {
	case 1:
		panic("secret")
	case 2:
		return make([]error, 17)
	}
	return nil
}
func (s *malformedSink) Close(context.Context) error { return nil }

// TestBreakerKeepsWhatWaits: while the sink is unavailable, pending deltas are neither passed to
// the handler, whose events would take memory, nor counted as attempted, so they can still be
// coalesced. Of all routes and workers only one probes at a time.
func TestBreakerKeepsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		writes, writing, together, handled := 0, 0, 0, 0
		s := &recordingSink{refuse: func(event.Event) error { return errDown }}
		s.before = func(ctx context.Context) {
			mu.Lock()
			writes++
			if writing++; writes > 20 {
				together = max(together, writing)
			}
			mu.Unlock()
			select {
			case <-time.After(5 * time.Second): // a timeout
			case <-ctx.Done():
			}
			mu.Lock()
			writing--
			mu.Unlock()
		}
		h := handleEach(func(d *event.Delta) plugins.Result {
			mu.Lock()
			handled++
			mu.Unlock()
			return ok(d)
		})
		route := spec.Settings{Sinks: to(s), Handler: h, Concurrency: 4}
		b := start(t, route, route)
		for i := range 1000 {
			b.admit(delta(t, event.Added, fmt.Sprint("x", i), 0, 1))
		}
		pass(20 * time.Minute)
		atOnce := 2 * 4 * 8 // in batches of both routes when the breaker opened
		if n := writes; n < 30 || handled > atOnce+2*n {
			t.Errorf("%d deltas were handled, in %d writes", handled, n)
		}
		if together != 1 {
			t.Errorf("%d probes at a time", together)
		}
	})
}

// TestUnavailable: an unavailable sink is listed with its reason, until it takes an event.
func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s0, s1 := &recordingSink{refuse: func(event.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}}, &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s0), Retry: spec.Retry{Max: time.Minute, Exact: true}}, spec.Settings{Sinks: to(nil, s1)[1:]})
		if down := b.Unavailable(); len(down) != 0 {
			t.Errorf("before anything is written: %+v", down)
		}
		begin := time.Now()
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Hour)
		reported := b.Unavailable()
		// the delta may wait a little longer than the sink
		if len(reported) != 1 || reported[0].Name != "s0" || reported[0].Reason != errDown.Error() || reported[0].Since.Sub(begin) > time.Minute || reported[0].Until.Before(time.Now().Add(-time.Minute)) {
			t.Errorf("while it is down: %+v", reported)
		}
		if b.value("route_sink_unavailable", "route0", "s0") != 1 || b.value("route_sink_unavailable", "route1", "s1") != 0 {
			t.Error("the metric does not say which sink is down")
		}
		equal(t, "the other route", s1.got(), "added a@1")
		down.Store(false)
		pass(time.Hour)
		if reported := b.Unavailable(); len(reported) != 0 {
			t.Errorf("when it is back: %+v", reported)
		}
		if b.value("route_sink_unavailable", "route0", "s0") != 0 {
			t.Error("the metric says that a sink is down that is back")
		}
		equal(t, "what waited", s0.got(), "added a@1")
	})
}
