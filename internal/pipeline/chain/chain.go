// Package chain makes the deltas that a route passes to a downstream route, and the events that the
// last route of a chain without a handler delivers.
package chain

import (
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Delta returns the delta for a downstream route: a copy of d with an event of the upstream route,
// and without the count of that route's limit. It belongs to the downstream route.
func Delta(d *event.Delta, e *event.Event) *event.Delta {
	down := &struct {
		delta event.Delta
		event event.Event
	}{*d, *e}
	down.event.Of, down.event.Key = nil, "" // belong to the upstream route
	down.delta.Event, down.delta.Suppressed, transit.Of(&down.delta).Durable = &down.event, 0, nil
	return &down.delta
}

// Event returns the event of a route without a handler: for a delta from a source the delta itself
// (see [event.Payload]); for a delta from an upstream route the event of that route, with the ID
// and the name of this one.
func Event(d *event.Delta, route string) event.Event {
	if d.Event == nil {
		return event.New(d, route, 0, event.Payload(d))
	}
	e := event.New(d, route, 0, d.Event.Data)
	e.Type, e.Subject = d.Event.Type, d.Event.Subject
	return e
}
