package pipeline_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

type discardingSink struct{}

func (discardingSink) Write(context.Context, []event.Event) []error { return nil }
func (discardingSink) Close(context.Context) error                  { return nil }

// benchDeltas makes deltas of objects of 1 KB.
func benchDeltas(b *testing.B) []*event.Delta {
	b.Helper()
	deltas := make([]*event.Delta, 4096)
	for i := range deltas {
		text := fmt.Sprintf(`{"metadata":{"namespace":"default","name":"pod-%d","uid":"u%d","resourceVersion":"1"},"x":%q}`, i, i, strings.Repeat("x", 1000))
		o, err := event.ParseObject(pods, text)
		if err != nil {
			b.Fatal(err)
		}
		deltas[i] = &event.Delta{Source: "pods", Op: event.Updated, Old: o, New: o, Seen: time.Now()}
	}
	return deltas
}

func benchRoute(batch int) spec.Settings {
	return spec.Settings{
		Sinks: []spec.NamedSink{{Name: "discard", Sink: discardingSink{}}}, Overflow: spec.Block,
		Batch: spec.Batch{Size: batch, Wait: time.Millisecond}, Concurrency: 4,
	}
}

// BenchmarkDelivery measures a delta from Admit to ack, objects of 1 KB, with a sink that does
// nothing.
func BenchmarkDelivery(b *testing.B) {
	deltas := benchDeltas(b)
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			p := start(b, benchRoute(size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p.admit(deltas[i%len(deltas)])
			}
			p.drain()
		})
	}
}

// BenchmarkDirty measures how long the sources are blocked while 10,000 changed deltas are handed
// over.
func BenchmarkDirty(b *testing.B) {
	deltas := benchDeltas(b)
	for range b.N {
		b.StopTimer()
		p := openAs(b, pipeline.Config{Store: fakeStore{}}, benchRoute(1))
		for i := range 10_000 - 1 {
			p.admit(deltas[i%len(deltas)])
		}
		b.StartTimer()
		if cuts := p.Dirty(); len(cuts[0].Put) != 10_000-1 {
			b.Fatal(len(cuts[0].Put))
		}
	}
}

// BenchmarkDurable measures the same with and without tracking, by turns, 4096 deltas a turn.
// Changes are handed over ten times as often as by a checkpoint. ratio is the throughput with
// tracking divided by that without.
func BenchmarkDurable(b *testing.B) {
	deltas := benchDeltas(b)
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			var spent [2]time.Duration
			var routers [2]*harness
			for i, cfg := range []pipeline.Config{{}, {Store: fakeStore{}}} {
				routers[i] = openAs(b, cfg, benchRoute(size))
				routers[i].Start(b.Context())
			}
			handedOver := time.Now()
			b.ResetTimer()
			for n := range 2 * b.N {
				p, begin := routers[n%2], time.Now()
				for i, d := range deltas {
					p.admit(d)
					if n%2 == 1 && i%1024 == 0 && time.Since(handedOver) > 100*time.Millisecond {
						p.Dirty()
						handedOver = time.Now()
					}
				}
				for p.Pending("route0") > 0 {
					runtime.Gosched()
				}
				spent[n%2] += time.Since(begin)
			}
			total := float64(b.N * len(deltas))
			b.ReportMetric(float64(spent[0].Nanoseconds())/total, "ns/delta-off")
			b.ReportMetric(float64(spent[1].Nanoseconds())/total, "ns/delta-on")
			b.ReportMetric(float64(spent[0])/float64(spent[1]), "ratio")
		})
	}
}

// BenchmarkChain measures a delta through two routes in a chain, against two routes that each take
// it from its source: in both cases it reaches two sinks. Each delta is of 1 KB, and the second
// route passes its events on.
func BenchmarkChain(b *testing.B) {
	deltas := benchDeltas(b)
	to := func(name string) spec.NamedSink { return spec.NamedSink{Name: name, Sink: discardingSink{}} }
	first, second := benchRoute(64), benchRoute(64)
	first.Name, second.Name = "first", "second"
	first.Sinks, second.Sinks = []spec.NamedSink{to("one")}, []spec.NamedSink{to("two")}
	chained, last := first, second
	chained.Sinks, last.Downstream = append(downstream("second"), to("one")), true
	for name, routes := range map[string][]spec.Settings{"chain": {chained, last}, "two-sources": {first, second}} {
		b.Run(name, func(b *testing.B) {
			p := start(b, routes...)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p.admit(deltas[i%len(deltas)])
			}
			p.drain()
		})
	}
}
