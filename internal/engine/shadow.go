package engine

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// shadowVersion is the version of the sinks of routes with shadow: they share no circuit breaker
// with the real ones.
const shadowVersion = "shadow"

// shadow returns a target that takes the events of a route with shadow and delivers nothing. It has
// the name of the real one, for the history. Where no sink is real, as in a trial, the events are
// collected like all others.
func (s *Set) shadow(target spec.NamedSink) spec.NamedSink {
	route := target.Route
	target.Version, target.Route, target.InOrder = shadowVersion, "", false
	if s.env.Sinks == nil {
		target.Sink = nowhere{}
	} else if route != "" {
		if sink, err := s.env.Sinks(target.Name); err == nil {
			target.Sink = sink
		}
	}
	return target
}

// nowhere is a sink that takes all events.
type nowhere struct{}

// Write implements plugins.Sink.
func (nowhere) Write(context.Context, []event.Event) []error { return nil }

// Close implements plugins.Sink.
func (nowhere) Close(context.Context) error { return nil }

var _ plugins.Sink = nowhere{}
