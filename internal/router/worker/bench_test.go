//go:build unix

package worker

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkWorker measures a delta of 5 KB from the stream to the sink and back, in a worker. The
// server is a process of its own.
func BenchmarkWorker(b *testing.B) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	f := fleetWith(b, natstest.Start(b, natstest.Config{}).URL(), 4, "")
	s := f.sink("first")
	var count atomic.Int64
	all := make(chan struct{})
	total := int64(b.N)
	f.receiver.refuse = func(event.Event) error {
		if count.Add(1) == total {
			close(all)
		}
		return nil
	}
	text := strings.Repeat("kubernetes deltas ", 280)
	for first := 0; first < b.N; first += 200 {
		var events []event.Event
		for i := first; i < min(first+200, b.N); i++ {
			o, err := event.ParseObject(pods, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":"pod-%d","uid":"u-%d","resourceVersion":"%d"},"text":%q}`,
				i%1000, i%1000, i+1, text[i%100:]))
			must.Succeed(b, err)
			events = append(events, chain.Event(&event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()}, "first"))
		}
		for _, err := range s.Write(b.Context(), events) {
			must.Succeed(b, err)
		}
	}
	before := cpu(b)
	b.ResetTimer()
	end := f.start()
	<-all
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	end()
}
