package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

type discard struct{}

func (discard) Write(context.Context, []event.Event) []error { return nil }
func (discard) Close(context.Context) error                  { return nil }

// BenchmarkDelivery measures a delta from Admit to ack, objects of 1 KB, with a sink that does nothing.
func BenchmarkDelivery(b *testing.B) {
	deltas := make([]*event.Delta, 4096)
	for i := range deltas {
		text := fmt.Sprintf(`{"metadata":{"namespace":"default","name":"pod-%d","uid":"u%d","resourceVersion":"1"},"x":%q}`, i, i, strings.Repeat("x", 1000))
		o, err := event.ParseObject(pods, text)
		if err != nil {
			b.Fatal(err)
		}
		deltas[i] = &event.Delta{Source: "pods", Op: event.Updated, Old: o, New: o, Seen: time.Now()}
	}
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			p := start(b, pipeline.Route{
				Sinks: []pipeline.NamedSink{{Name: "discard", Sink: discard{}}}, Overflow: pipeline.Block,
				Batch: pipeline.Batch{Size: size, Wait: time.Millisecond}, Concurrency: 4,
			})
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p.admit(deltas[i%len(deltas)])
			}
			p.drain()
		})
	}
}
