package pipeline_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestHandlerUnavailable: unavailability of a handler does not count as an attempt. The deltas stay
// in order, however often it occurs, and are handled once it is available; only one that is older
// than maxAge becomes a dead letter.
func TestHandlerUnavailable(t *testing.T) {
	// Guarantee: broken-handler
	for name, back := range map[string]time.Duration{"comes back": 50 * time.Minute, "stays away": 90 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := &recordingSink{}, time.Now()
				var calls atomic.Int64
				h := handleEach(func(d *event.Delta) plugins.Result {
					if time.Since(began) < back {
						calls.Add(1)
						err := plugins.Postpone(fmt.Errorf("postponed: %w", errDown), 10*time.Second)
						return plugins.Result{Verdict: plugins.Retry, Err: err}
					}
					return ok(d)
				})
				b := start(t, spec.Settings{
					Sinks: to(s), Handler: h, Concurrency: 4, OnFailure: spec.DeadLetter,
					Retry: spec.Retry{Attempts: 1, Backoff: time.Second, Max: time.Minute, MaxAge: time.Hour},
				})
				b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Added, "b", 0, 3), delta(t, event.Updated, "a", 2, 4))
				pass(45 * time.Minute)
				equal(t, "early dead letters", b.letters.got())
				if calls := calls.Load(); calls < 10 {
					t.Errorf("%d calls in 45 minutes", calls)
				}
				pass(80 * time.Minute)
				if name == "comes back" {
					equal(t, "dead letters", b.letters.got())
					a := []string{}
					for _, e := range s.got() {
						if strings.Contains(e, " a@") {
							a = append(a, e)
						}
					}
					equal(t, "a", a, "added a@1", "updated a@2", "updated a@4")
					if n := b.value("route_deltas_total", "route0", metrics.Delivered); n != 4 {
						t.Errorf("%v were delivered", n)
					}
				} else if n := b.value("route_deltas_total", "route0", metrics.DeadLettered); n != 4 || len(s.got()) != 0 {
					t.Errorf("%v dead letters, delivered %q", n, s.got())
				}
				b.balanced("route0")
			})
		})
	}
}
