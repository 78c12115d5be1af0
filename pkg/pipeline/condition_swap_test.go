package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// TestConditionSwap: routes are exchanged at the very moment at which many conditions are due. All of them are told, or counted as suppressed, once.
func TestConditionSwap(t *testing.T) {
	const n = 300
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := &sink{}
			route := func() pipeline.Route {
				return pipeline.Route{
					Name: "r", Sources: []string{"pods"}, Ops: edges, Sinks: to(s), When: pipeline.When{Filter: whenOn, Version: "1", For: time.Minute}, Existing: true,
					Batch: pipeline.Batch{Size: n},
					Limit: pipeline.Limit{Every: time.Hour, Burst: n / 2, Key: func(context.Context, *event.Delta) (string, error) { return "", nil }},
				}
			}
			b := start(t, route())
			for i := range n {
				b.admit(lampDelta(t, event.Added, fmt.Sprint("l", i), i+1, true))
			}
			change, err := b.Prepare([]pipeline.Route{route()})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			change.Swap()
			change.Finish(t.Context())
			pass(time.Second)
			if told, suppressed := len(s.got()), b.value("route_deltas_total", "r", "suppressed"); told != n/2 || suppressed != n/2 {
				t.Errorf("%d were told, %v suppressed, want %d each", told, suppressed, n/2)
			}
		})
	}
}
