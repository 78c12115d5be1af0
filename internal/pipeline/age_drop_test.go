package pipeline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestTooOldDropped: with onFailure: drop a delta beyond maxAge is dropped: it counts as too old
// and as dropped, and is no dead letter.
func TestTooOldDropped(t *testing.T) {
	// Guarantee: max-age, too-old
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), MaxAge: 10 * time.Minute, OnFailure: spec.Drop})
		old := delta(t, event.Added, "old", 0, 1)
		old.Seen = old.Seen.Add(-time.Hour)
		b.admit(old, delta(t, event.Added, "a", 0, 2))
		pass(time.Minute)
		equal(t, "delivered", s.got(), "added a@2")
		equal(t, "dead letters", b.letters.got())
		dropped := b.value("route_deltas_total", "route0", metrics.Dropped)
		if tooOld := b.value("route_errors_total", "max_age"); dropped != 1 || tooOld != 1 {
			t.Errorf("%v dropped, %v too old, want one each", dropped, tooOld)
		}
		b.balanced("route0")
	})
}
