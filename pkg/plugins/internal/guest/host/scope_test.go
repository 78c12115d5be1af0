package host

import (
	"log/slog"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// TestPatience: a host function waits at most the time of one delta, and at most the remaining time
// of the batch.
func TestPatience(t *testing.T) {
	// Guarantee: reload-host-function
	clock := timer.NewFake(time.Now())
	s := New(Allow{}, "null", &abi.Limits{}, plugins.HandlerEnv{Env: plugins.Env{Clock: clock, Log: slog.New(slog.DiscardHandler)}}).NewScope(t.Context())
	s.begin(t.Context(), make([]*event.Delta, 100), time.Hour)
	for _, passed := range []time.Duration{0, 99*time.Hour + time.Minute} {
		clock.Advance(clock.Now().Add(passed))
		most := min(time.Hour, s.deadline.Sub(clock.Now()))
		ctx, cancel := s.patience(t.Context())
		defer cancel()
		if until, _ := ctx.Deadline(); time.Until(until) > most || time.Until(until) < most-time.Minute {
			t.Errorf("after %v a function may wait for %v, want %v", passed, time.Until(until), most)
		}
	}
}
