package chain_test

import (
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// TestChain: a route without a handler delivers the event of its upstream route under its own name
// and ID.
func TestChain(t *testing.T) {
	o, err := event.ParseObject(&event.Resource{Cluster: "c"}, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}}`)
	if err != nil {
		t.Fatal(err)
	}
	d := &event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Unix(5, 0), Suppressed: 3}
	transit.Of(d).Durable = make(chan struct{})
	if e := chain.Event(d, "r"); string(e.Data) != string(event.Payload(d)) || e.ID != event.New(d, "r", 0, nil).ID || e.Type != "io.deltarouter.added" {
		t.Errorf("got %+v", e)
	}
	first := event.New(d, "first", 1, []byte(`{"x":1}`))
	first.Type, first.Subject, first.Key = "mine", "what", "key"
	down := chain.Delta(d, &first)
	if down.Event.Of != nil || down.Event.Key != "" || first.Of != d || transit.Of(down).Durable != nil || transit.Of(d).Durable == nil || d.Event != nil || down.New != o || down.Suppressed != 0 || d.Suppressed != 3 {
		t.Errorf("the delta is %+v, its event %+v", down, down.Event)
	}
	e := chain.Event(down, "r")
	if e.Type != "mine" || e.Subject != "what" || string(e.Data) != `{"x":1}` || e.Route != "r" || e.ID != event.New(down, "r", 0, nil).ID || e.ID == first.ID {
		t.Errorf("got %+v", e)
	}
}
