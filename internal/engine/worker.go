package engine

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// WorkerRoutes assembles the routes of a process that delivers deltas which another one has
// admitted: they have handlers and sinks, and nothing that is evaluated before. Several pipelines
// may have one of them: the calls of a handler are bounded together.
func (s *Set) WorkerRoutes() []spec.Settings {
	for _, h := range s.handlers {
		if h.slots == nil {
			h.slots = make(chan struct{}, max(h.workers, 1))
		}
	}
	s.Waits = make(map[string]func(context.Context))
	var routes []spec.Settings
	for _, r := range s.Routes() {
		worker := spec.Settings{
			Name: r.Name, Version: r.Version, ID: r.ID, Sources: r.Sources, Ops: r.Ops, HandlerName: r.HandlerName, Handler: r.Handler, Sinks: r.Sinks,
			Secret: r.Secret, Overflow: spec.Block, MaxAge: r.MaxAge, Batch: r.Batch, Concurrency: r.Concurrency, Capacity: r.Capacity, Bytes: r.Bytes,
			Retry: r.Retry, OnFailure: r.OnFailure,
		}
		if r.HandlerName == emitHandler { // the leader has made the events
			worker.HandlerName, worker.Handler = "", nil
		}
		routes = append(routes, worker)
	}
	s.Waits, s.fill, s.Watches = nil, nil, nil
	return routes
}
