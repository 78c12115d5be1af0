package pipeline_test

import (
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		b := start(t, pipeline.Route{Sinks: []pipeline.NamedSink{{Name: "s", Sink: s}}})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Added, "b", 0, 3))
		b.drain()
		t.Log(s.got(), s.writes)
		b.balanced("route0")
	})
}
