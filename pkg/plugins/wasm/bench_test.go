package wasm_test

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
)

// BenchmarkHandle is what the way into a guest and back costs: the guest itself does nothing.
func BenchmarkHandle(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d deltas of 2 KB", n), func(b *testing.B) {
			node := plugintest.Node(b, fmt.Sprintf("{module: %q}", guest(constant(opI64, 0)).write(b)))
			handler, err := wasm.Factory().Open(b.Context(), node, newHost().env)
			if err != nil {
				b.Fatal(err)
			}
			batch := make([]*event.Delta, n)
			for i := range batch {
				batch[i] = &event.Delta{Source: "pods", Op: event.Updated, Old: plugintest.Pod(b, "p", 1, 2000), New: plugintest.Pod(b, "p", 2, 2000)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := handler.Handle(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/delta")
			if err := handler.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}
