//go:build !race

package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestDeliveryAllocations: a delta allocates from Admit to ack as much as before there were fleets,
// if nothing is configured that only fleets need. A change of this number needs a reason.
func TestDeliveryAllocations(t *testing.T) {
	const n, most = 512, 10
	deltas := make([]*event.Delta, n)
	for i := range deltas {
		deltas[i] = delta(t, event.Updated, fmt.Sprint("pod-", i), 1, 2)
	}
	sinks := []spec.NamedSink{{Name: "discard", Sink: discardingSink{}}}
	p := start(t, spec.Settings{Sinks: sinks, Batch: spec.Batch{Size: 1}, Concurrency: 1, Capacity: n + 1})
	each := testing.AllocsPerRun(20, func() {
		for _, d := range deltas {
			p.admit(d)
		}
		must.Succeed(t, p.Idle(t.Context()))
	}) / n
	t.Logf("%.2f allocations for a delta", each)
	if each >= most+1 {
		t.Errorf("%.2f allocations for a delta, want %d", each, most)
	}
}
