package fields_test

import (
	"os"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// BenchmarkBatch measures the selection of status.phase from both states of a pod of 5 KB.
func BenchmarkBatch(b *testing.B) {
	text, err := os.ReadFile("../rawjson/testdata/pod.json")
	must.Succeed(b, err)
	set, err := fields.New([]string{"status.phase"})
	must.Succeed(b, err)
	pod := plugintest.Object(b, string(text))
	batch := make([]*event.Delta, 16)
	for i := range batch {
		batch[i] = &event.Delta{Op: event.Updated, New: pod, Old: pod}
	}
	b.ReportAllocs()
	for b.Loop() {
		set.Batch(batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/delta")
}
