package pipeline_test

import (
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestExemplar shows that the histogram of deliveries has the id that the sink got.
func TestExemplar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, pipeline.Route{Sinks: to(s)})
		b.admit(delta(t, event.Added, "a", 0, 1))
		b.drain()
		families, err := b.registry.Gather()
		must.Succeed(t, err)
		var ids []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, bucket := range m.GetHistogram().GetBucket() {
					for _, label := range bucket.GetExemplar().GetLabel() {
						ids = append(ids, label.GetName()+"="+label.GetValue())
					}
				}
			}
		}
		equal(t, "exemplars", ids, "event_id="+s.events[0].ID)
	})
}
