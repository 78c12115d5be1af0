package route

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// chainOf returns a route that delivers to another one, and an entry of it with an event.
func chainOf(t *testing.T) (a, b *Route, e *queue.Entry) {
	t.Helper()
	env := &Env{
		Storage: Storage{Clock: timer.NewFake(time.Now())}, Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(),
		Wheel: timer.NewWheel(timer.NewFake(time.Now())), Census: rules.NewCensus(),
		Downstream: func(string) *Route { return b },
	}
	env.Progress.Init()
	breakers := map[string]*deliver.Sink{}
	add := func(s spec.Settings) *Route {
		s.Ops = event.Ops()
		return New(env, NewGeneration(env, &s, 0, breakers))
	}
	b = add(spec.Settings{Name: "b", Downstream: true, Sinks: []spec.NamedSink{{Name: "null", Sink: discardingSink{}}}})
	a = add(spec.Settings{Name: "a", Sources: []string{"s"}, Sinks: []spec.NamedSink{{Name: "to b", Route: "b"}}})
	o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"x","uid":"u"}}`)
	if err != nil {
		t.Fatal(err)
	}
	return a, b, &queue.Entry{
		Delta: &event.Delta{Source: "s", Op: event.Added, New: o}, Progress: &queue.Progress{Events: make([]event.Event, 1)},
	}
}

type discardingSink struct{}

func (discardingSink) Write(context.Context, []event.Event) []error { return nil }
func (discardingSink) Close(context.Context) error                  { return nil }

// A route that was visited first may have got an event since: it is visited again. The test is an
// internal one, like the next, because calls from outside cannot act between two visits.
func TestAnywhere(t *testing.T) {
	var c Chains
	looked := 0
	found := c.Anywhere(func() bool {
		if looked++; looked == 1 {
			c.handed.Add(1)
		}
		return looked > 1
	})
	if !found || looked != 2 {
		t.Errorf("%v after %d looks", found, looked)
	}
	if c.Anywhere(func() bool { looked++; return false }) || looked != 3 {
		t.Errorf("%d looks", looked)
	}
}

// A worker that is abandoned right before it hands over passes nothing on. Its deltas stay pending
// at its route.
func TestAbandonedAtHandOver(t *testing.T) {
	a, b, e := chainOf(t)
	f := b.offerOf(t.Context(), e)
	w := newWorker(a)
	w.generation, w.abandoned = a.Generation(), true
	if result, _ := w.handOver(0, e, &f); result != abandoned || e.Progress.Closed != 0 || b.Status().Pending != 0 || a.env.Chains.handed.Load() != 0 {
		t.Errorf("%d, closed %b, b has %d", result, e.Progress.Closed, b.Status().Pending)
	}
	w.abandoned = false
	if result, _ := w.handOver(0, e, &f); result != handed || e.Progress.Closed != 1 || b.Status().Pending != 1 {
		t.Errorf("%d, closed %b, b has %d", result, e.Progress.Closed, b.Status().Pending)
	}
}
