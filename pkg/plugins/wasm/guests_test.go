package wasm_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// guestEvents is how many events a test of memory hands to a guest: 50,000, or GUEST_EVENTS.
func guestEvents(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("GUEST_EVENTS")); err == nil {
		return n
	}
	if testing.Short() || raceDetector {
		return 5_000
	}
	return 50_000
}

// flood hands a guest so many events, in batches, and returns the most memory that it had.
func flood(t *testing.T, h *host, handler plugins.Handler, batch []*event.Delta, events int) (most float64) {
	t.Helper()
	for range events / len(batch) {
		results, err := handler.Handle(t.Context(), batch)
		must.Succeed(t, err)
		for _, r := range results {
			if r.Verdict != plugins.OK {
				t.Fatal(r)
			}
		}
		most = max(most, h.memory())
	}
	return most
}

// TestFlatMemory shows for each language that what the deltas leave behind is freed, or used again:
// it is many times what a guest may have. An instance is not replaced meanwhile, neither for its
// calls nor for its memory.
func TestFlatMemory(t *testing.T) {
	for _, e := range examples() {
		if e.name != "summary" {
			continue
		}
		t.Run(e.source, func(t *testing.T) {
			module := e.module(t)
			object := parseObject(t, []byte(`{"metadata":{"namespace":"default","name":"a","labels":{"a":"b"},"annotations":{"long":"`+
				strings.Repeat("long text ", 40)+`\n"}}}`))
			delta := &event.Delta{Source: "pods", Op: event.Added, New: object}
			h := newHost()
			h.env.Workers = 1
			handler := h.open(t, fmt.Sprintf("{module: %q, config: {note: long}, limits: {memory: 64Mi, calls: 100M}}", module))
			for _, size := range []int{64, 1} { // deltas of a call
				events := guestEvents(t)
				if size == 1 {
					events /= 10
				}
				if most := flood(t, h, handler, slices.Repeat([]*event.Delta{delta}, size), events); most > 16<<20 {
					t.Errorf("with batches of %d the guest had up to %v bytes of memory", size, most)
				}
			}
		})
	}
}

// TestCoreV1 is about a handler in Go that unmarshals a pod of 5 KB into corev1.Pod, again and
// again, with the fuel that it has unless more is asked for. A pod takes some 6M, as much once more
// when Go's collector runs meanwhile, and the first one 58M.
func TestCoreV1(t *testing.T) {
	skipIfSlow(t)
	text, err := os.ReadFile("testdata/pod/pod.json")
	must.Succeed(t, err)
	h := newHost()
	h.env.Workers = 1
	handler := h.open(t, fmt.Sprintf("{module: %q, limits: {memory: 64Mi}}", build(t, "testdata/pod")))
	delta := &event.Delta{Source: "pods", Op: event.Updated, Old: parseObject(t, text), New: parseObject(t, text)}
	batch := slices.Repeat([]*event.Delta{delta}, 64)
	for _, r := range handle(t, handler, batch) {
		if r.Verdict != plugins.OK || len(r.Events) != 1 || string(r.Events[0].Data) != `{"containers":2,"cpu":"100m","phase":"Running"}` {
			t.Fatal(r)
		}
	}
	fuel := func() float64 { return testutil.ToFloat64(h.env.Metrics.GuestFuel.WithLabelValues(h.env.Name)) }
	const events = 1280
	before := fuel()
	most := flood(t, h, handler, batch, events)
	per := (fuel() - before) / events
	t.Logf("%.0f fuel for a pod of %d bytes, %.1f MiB of memory", per, len(text), most/(1<<20))
	if per > 12_000_000 || most > 48<<20 {
		t.Errorf("a pod takes %.0f fuel, and the guest %v bytes", per, most)
	}
}
