package wasm_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// flood passes events to a guest in batches, and returns its maximum memory.
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

// TestFlatMemory: for each language, the memory of handled deltas is reused. Their sum is many
// times the limit of a guest. The instance is not replaced during the test, neither for its calls
// nor for its memory.
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
			for _, size := range []int{64, 1} { // deltas per call
				events := effort.Rounds(5_000, 50_000, 50_000)
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

// TestCoreV1 repeatedly unmarshals a pod of 5 KB into corev1.Pod in Go, with the default fuel. A
// pod takes about 6M, twice that when Go's garbage collector runs, and the first pod 58M. Compiling
// k8s.io/api to WebAssembly takes longer than all other tests of this package.
func TestCoreV1(t *testing.T) {
	effort.AtLeast(t, effort.Full)
	skipIfSlow(t)
	text, err := os.ReadFile("testdata/pod/pod.json")
	must.Succeed(t, err)
	h := newHost()
	h.env.Workers = 1
	handler := h.open(t, fmt.Sprintf("{module: %q, limits: {memory: 64Mi}}", built.Module(t, "testdata/pod")))
	delta := &event.Delta{Source: "pods", Op: event.Updated, Old: parseObject(t, text), New: parseObject(t, text)}
	batch := slices.Repeat([]*event.Delta{delta}, 64)
	for _, r := range handle(t, handler, batch) {
		if r.Verdict != plugins.OK || len(r.Events) != 1 || string(r.Events[0].Data) != `{"containers":2,"cpu":"100m","phase":"Running"}` {
			t.Fatal(r)
		}
	}
	fuel := func() float64 {
		return testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestFuel.WithLabelValues(h.env.Name))
	}
	const events = 1280
	before := fuel()
	most := flood(t, h, handler, batch, events)
	per := (fuel() - before) / float64(events)
	t.Logf("%.0f fuel for a pod of %d bytes, %.1f MiB of memory", per, len(text), most/(1<<20))
	if per > 12_000_000 || most > 48<<20 {
		t.Errorf("a pod takes %.0f fuel, and the guest %v bytes", per, most)
	}
}
