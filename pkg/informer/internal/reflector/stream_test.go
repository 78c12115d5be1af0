package reflector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
)

// The pause before a stream of initial events grows with each one that has failed.
func TestPauseAfterFailedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quirks
		for i, want := range []time.Duration{0, 1, 2, 4, 8, 8} {
			began := time.Now()
			if err := q.calm(t.Context(), backoff.Policy{Min: time.Second, Max: 8 * time.Second, Exact: true}); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got != want*time.Second {
				t.Errorf("after %d failures: %v, want %v", i, got, want*time.Second)
			}
			q.failedInitial()
		}
	})
}
