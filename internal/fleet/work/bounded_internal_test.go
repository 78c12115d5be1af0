package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestBounded: an outbox that stores nothing for long keeps no event of a Write that has ended, in
// whichever way it has.
func TestBounded(t *testing.T) {
	// Guarantee: workers-nats-gone
	o := NewOutbox(OutboxConfig{Log: slog.New(slog.DiscardHandler)})
	s := o.Sink(Route{ID: "r", Partitions: 1})
	pod, err := event.ParseObject(&event.Resource{Cluster: "c", Kind: "Pod"}, `{"metadata":{"name":"x","uid":"x","resourceVersion":"1"}}`)
	must.Succeed(t, err)
	d := &event.Delta{Source: "pods", Op: event.Added, New: pod}
	write := func(ctx context.Context) {
		t.Helper()
		for n := range 1000 {
			e := event.Event{ID: fmt.Sprint(n % 100), Of: d} // deltas are tried again and again
			if errs := s.Write(ctx, []event.Event{e, e}); len(errs) != 2 || errs[0] == nil || errs[1] == nil {
				t.Fatalf("%d: %v", n, errs)
			}
		}
		if len(o.queue)+len(o.items)+o.settled > 0 {
			t.Errorf("%d in the queue, %d events, %d results", len(o.queue), len(o.items), o.settled)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	write(cancelled) // before the first attempt to reach NATS has failed
	o.fail(errors.New("full"))
	write(t.Context())
	o.fail(nil)
	write(cancelled)
	o.stop()
	write(t.Context())
}
