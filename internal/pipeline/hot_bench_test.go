package pipeline_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// requestCounter is a sink for which each write is a request of a millisecond, whatever its size.
type requestCounter struct{ n atomic.Int64 }

func (r *requestCounter) Write(ctx context.Context, _ []event.Event) []error {
	r.n.Add(1)
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
	}
	return nil
}
func (*requestCounter) Close(context.Context) error { return nil }

// BenchmarkHotObject measures how long a sink that delivers a batch in one request takes for a
// backlog in which one object has changed a thousand times and each of 5,000 others four times. It
// is compared with a sink that takes one delta of each key at a time. ratio is the throughput of
// the first divided by that of the second.
func BenchmarkHotObject(b *testing.B) {
	var deltas []*event.Delta
	for round := range 4 {
		for i := range 5000 {
			deltas = append(deltas, delta(b, event.Updated, fmt.Sprint("cold-", i), round+1, round+2))
			if i%20 == 0 {
				v := len(deltas)
				deltas = append(deltas, delta(b, event.Updated, "hot", v, v+1))
			}
		}
	}
	var spent [2]time.Duration
	var wrote [2]int64
	for range b.N {
		for i, inOrder := range []bool{true, false} {
			s := &requestCounter{}
			route := spec.Settings{
				Sinks: []spec.NamedSink{{Name: "requests", Sink: s, InOrder: inOrder}}, Capacity: len(deltas) + 1,
				Batch: spec.Batch{Size: 64}, Concurrency: 1,
			}
			p := open(b, route)
			p.admit(deltas...) // all deltas are pending when the first request is sent
			begin := time.Now()
			p.Start(b.Context())
			p.drain()
			spent[i] += time.Since(begin)
			wrote[i] += s.n.Load()
		}
	}
	total := float64(b.N * len(deltas))
	b.ReportMetric(total/float64(wrote[0]), "deltas/request")
	b.ReportMetric(total/float64(wrote[1]), "deltas/request-apart")
	b.ReportMetric(total/spent[0].Seconds(), "deltas/s")
	b.ReportMetric(total/spent[1].Seconds(), "deltas/s-apart")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}
