package work

import (
	"context"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// SinkName is the name of the sink in the metrics and the log of the leader. No configured sink has
// such a name.
const SinkName = "fleet/workers"

// Route is the part of a route that its work sink needs.
type Route struct {
	ID         string
	Hash       string // see HashOf
	Partitions int
	Made       bool // the route has `emit`: the events are finished
}

// Sink passes the deltas of one route to its workers. A delta counts as delivered when the stream
// has stored it.
type Sink struct {
	outbox *Outbox
	route  Route
	number uint64 // later sinks have larger ones

	retired bool // see Retire; guarded by transfers.mu
}

// Sink returns the sink of a route.
func (o *Outbox) Sink(r Route) *Sink {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sinks++
	return &Sink{outbox: o, route: r, number: o.sinks}
}

// patience is the time for which a Write that was cancelled waits for the answer of the server: an
// event that was stored and is not acknowledged is delivered twice.
const patience = 2 * time.Second

// Write implements [plugins.Sink].
func (s *Sink) Write(ctx context.Context, events []event.Event) []error {
	w := &writing{done: make(chan struct{}), items: make([]*item, len(events)), errs: make([]error, len(events))}
	for i := range events {
		w.items[i] = s.item(&events[i])
	}
	stuck := s.outbox.add(w)
	select {
	case <-w.done:
	case <-stuck:
	case <-ctx.Done():
		s.outbox.withdraw(w, ctx.Err())
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-w.done:
		case <-stuck:
		case <-t.C:
		}
	}
	return s.outbox.end(w)
}

// Close implements [plugins.Sink].
func (s *Sink) Close(context.Context) error { return nil }

// item encodes an event.
func (s *Sink) item(e *event.Event) *item {
	d := e.Of
	if s.route.Made {
		d = chain.Delta(d, e)
	}
	if e.TraceParent != d.TraceParent {
		traced := *d
		traced.TraceParent, d = e.TraceParent, &traced
	}
	m := &Message{
		Route: s.route.ID, Hash: s.route.Hash, Key: e.OrderKey(), Keyed: e.Key != "", Target: transit.Of(d).Only, Made: s.route.Made, Delta: d,
	}
	return &item{
		id: itemID{s.route.ID, m.Target, e.ID}, sink: s, key: m.Key, again: d.Redelivered, body: s.outbox.codec.Encode(m),
	}
}

// unavailable is the error of an event that the stream does not take at the moment.
func unavailable(why error) error {
	return plugins.RetryLater(fmt.Errorf("NATS does not take deltas for workers: %w", why), 0)
}

// Route returns the route of the sink.
func (s *Sink) Route() Route { return s.route }

// Version differs for each sink.
func (s *Sink) Version() string { return fmt.Sprint(s.number) }

// Retire makes the sink refuse all events, and waits until the workers have handled those that were
// sent. It reports whether ctx ended before.
func (s *Sink) Retire(ctx context.Context) (waiting bool, err error) {
	o := s.outbox
	s.setRetired(true)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		if !o.busy(s.route.ID) {
			none, err := none(ctx, o.config.Conn, o.config.Conn.Names.WorkRoute(s.route.ID))
			if ctx.Err() == nil && (none || err != nil) {
				return false, err
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return true, nil
		}
	}
}

// Resume ends Retire.
func (s *Sink) Resume() { s.setRetired(false) }

func (s *Sink) setRetired(retired bool) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	s.retired = retired
}
