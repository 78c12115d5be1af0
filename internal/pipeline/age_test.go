package pipeline_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestTooOld: a delta beyond maxAge becomes a dead letter with the reason, wherever it waited; a
// route that pauses on failures does not pause for it. A redelivery starts the age again.
func TestTooOld(t *testing.T) {
	// Guarantee: max-age, too-old
	for _, onFailure := range []spec.OnFailure{spec.DeadLetter, spec.Pause} {
		synctest.Test(t, func(t *testing.T) {
			s, ok := &recordingSink{}, &recordingSink{}
			var down atomic.Bool
			down.Store(true)
			s.refuse = func(event.Event) error {
				if down.Load() {
					return errDown
				}
				return nil
			}
			b := start(t, spec.Settings{
				Sinks: to(s, ok), MaxAge: 10 * time.Minute, OnFailure: onFailure, Retry: spec.Retry{Max: time.Minute},
			})
			yesterday := delta(t, event.Added, "old", 0, 1)
			yesterday.Seen = yesterday.Seen.Add(-time.Hour)
			b.admit(yesterday, delta(t, event.Added, "a", 0, 2))
			pass(15 * time.Minute)
			equal(t, "letters", b.letters.got(), "old@1 ", "a@2 s0")
			for _, l := range b.letters.all {
				if !strings.Contains(l.Error, "10m0s") && !strings.Contains(l.Error, "refused") {
					t.Errorf("the dead letter has %q", l.Error)
				}
			}
			down.Store(false)
			pass(time.Minute)
			b.admit(delta(t, event.Added, "b", 0, 3))
			pass(time.Minute)
			if err := b.Redeliver(t.Context(), b.letters.all[0]); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			equal(t, "the sink that was down", s.got(), "added b@3", "added old@1")
			equal(t, "the other", ok.got(), "added a@2", "added b@3", "added old@1")
			if n := b.value("route_errors_total", "max_age"); n < 1 {
				t.Errorf("%v counted as too old", n)
			}
			b.balanced("route0")
		})
	}
}
