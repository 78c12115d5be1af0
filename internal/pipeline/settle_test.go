package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// WaitDelivered waits until all deltas are delivered that can be, including retries. The pipeline
// takes deltas after it as before.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		out, other := &recordingSink{}, &recordingSink{}
		late := handleEach(func(d *event.Delta) plugins.Result {
			if tries++; tries%2 == 1 {
				return plugins.Result{Verdict: plugins.Retry, Err: errors.New("not yet")}
			}
			return ok(d)
		})
		b := start(t,
			spec.Settings{Handler: late, Sinks: []spec.NamedSink{{Name: "out", Sink: out}}, Retry: spec.Retry{Attempts: 1, Backoff: time.Minute, Max: time.Minute}},
			spec.Settings{Ready: make(chan struct{}), Sinks: []spec.NamedSink{{Name: "other", Sink: other}}},
		)
		for round, want := range [][]string{{"added a@1"}, {"added a@1", "added b@2"}, {"added a@1", "added b@2"}} {
			if round < 2 {
				b.admit(delta(t, event.Added, string(rune('a'+round)), 0, round+1))
			}
			if err := b.WaitDelivered(t.Context()); err == nil || !strings.Contains(err.Error(), `route "route1" `) {
				t.Errorf("round %d: %v", round, err)
			}
			if got := out.got(); !slices.Equal(got, want) {
				t.Errorf("round %d: got %v, want %v", round, got, want)
			}
		}
		if got := other.got(); len(got) > 0 {
			t.Errorf("a route that is not ready delivered %v", got)
		}
	})
}

func TestSettleTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := handlerFunc(func(ctx context.Context, _ []*event.Delta) ([]plugins.Result, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		b := start(t, spec.Settings{Handler: hang, Sinks: []spec.NamedSink{{Name: "out", Sink: &recordingSink{}}}})
		if err := b.WaitDelivered(t.Context()); err != nil {
			t.Errorf("nothing is pending: %v", err)
		}
		b.admit(delta(t, event.Added, "a", 0, 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.WaitDelivered(ctx); err == nil || !strings.Contains(err.Error(), `route "route0" 1`) {
			t.Errorf("got %v", err)
		}
	})
}
