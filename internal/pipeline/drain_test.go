package pipeline_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestDrainLeavesDeadSinks: with a state folder a stop does not wait for unavailable sinks, even if
// they become unavailable during the stop, but for all deliveries to other sinks. Without one it
// retries until the end.
func TestDrainLeavesDeadSinks(t *testing.T) {
	// Guarantee: stop-bounded
	const timeout = 20 * time.Second
	for name, c := range map[string]struct {
		durable bool
		before  time.Duration // from the first failure to the stop
		waits   bool
	}{
		"known": {true, time.Minute, false}, "found out": {true, 0, false}, "nothing is kept": {false, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Bool
				dead := &recordingSink{refuse: func(event.Event) error { return errDown }}
				alive := &recordingSink{refuse: func(event.Event) error {
					if slow.Load() {
						time.Sleep(time.Second)
					}
					return nil
				}}
				retry := spec.Retry{Attempts: 1, Backoff: 100 * time.Millisecond, Max: time.Hour, MaxAge: 24 * time.Hour}
				named := func(name string, s *recordingSink) spec.NamedSink { return spec.NamedSink{Name: name, Sink: s} }
				routes := []spec.Settings{
					{Sinks: []spec.NamedSink{named("dead", dead)}, Retry: retry},
					{Sinks: []spec.NamedSink{named("alive", alive), named("dead", dead)}, Retry: retry, Concurrency: 1, Batch: spec.Batch{Size: 1}},
				}
				begin := start
				if c.durable {
					begin = startDurable
				}
				b := begin(t, routes...)
				for i := range 8 {
					b.admit(delta(t, event.Added, string(rune('a'+i)), 0, i+1))
				}
				pass(c.before)
				slow.Store(true)
				b.admit(delta(t, event.Added, "y", 0, 20), delta(t, event.Added, "z", 0, 21))
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				began := time.Now()
				err := b.Drain(ctx)
				if err == nil || !strings.Contains(err.Error(), `route "route0" 10, route "route1" 10`) {
					t.Error(err)
				}
				if took := time.Since(began); took < time.Second || (took >= timeout) != c.waits {
					t.Errorf("it took %s", took)
				}
				if n := len(alive.got()); n != 10 {
					t.Errorf("%d were delivered to the other sink", n)
				}
			})
		})
	}
}
