package pipeline_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// exemplars lists the labels of all exemplars, sorted: they come from a map.
func (b *harness) exemplars() (labels []string) {
	b.t.Helper()
	families, err := b.registry.Gather()
	must.Succeed(b.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, bucket := range m.GetHistogram().GetBucket() {
				for _, label := range bucket.GetExemplar().GetLabel() {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
			}
		}
	}
	slices.Sort(labels)
	return labels
}

// TestExemplar shows that the histogram of deliveries has the id that the sink got, and with
// tracing the id of the trace, if that is exported.
func TestExemplar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := delta(t, event.Added, "a", 0, 1)
		for _, c := range []struct {
			start func(spec.Settings) *harness
			trace []string
		}{
			{func(r spec.Settings) *harness { return start(t, r) }, nil},
			{func(r spec.Settings) *harness { b, _ := traced(t, false, r); return b }, nil},
			{func(r spec.Settings) *harness { b, _ := traced(t, true, r); return b }, []string{"trace_id=" + trace.Of(d).String()}},
		} {
			s := &recordingSink{}
			b := c.start(spec.Settings{Sinks: to(s)})
			b.admit(d)
			b.drain()
			equal(t, "exemplars", b.exemplars(), append([]string{"event_id=" + s.events[0].ID}, c.trace...)...)
		}
	})
}
