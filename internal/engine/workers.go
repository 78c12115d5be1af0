package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// workConcurrency is the smallest number of batches of a route with workers that are on their way
// to the stream at the same time: one is published while the next one is encoded.
const workConcurrency = 4

// workMaxAge: deltas that wait for NATS do not become dead letters.
const workMaxAge = 100 * 365 * 24 * time.Hour

// retireTimeout is the time for which a reload waits until the workers have handled the deltas of
// the routes that lose them.
const retireTimeout = 5 * time.Second

// ErrWorkersBusy is the refusal of a configuration without the workers of a route that have not
// handled all its deltas yet. A later attempt may succeed.
var ErrWorkersBusy = errors.New("deltas wait for the workers, so the reload is retried")

// remote are the routes of a set whose deltas the workers of the fleet handle. Without a fleet, as
// in a trial or on a worker itself, there are none.
type remote struct {
	outbox *work.Outbox // nil: no fleet
	plan   *compile.Plan
	sinks  map[string]*work.Sink // by id of the route
}

// has reports whether the workers handle the deltas of a route.
func (r *remote) has(p *compile.Route) bool { return p.Workers != nil && r.outbox != nil }

// open makes the sinks. A route that has not changed for its workers keeps its sink.
func (r *remote) open(old *remote) error {
	r.sinks = make(map[string]*work.Sink)
	for i := range r.plan.Routes {
		p := &r.plan.Routes[i]
		if !r.has(p) {
			continue
		}
		hash, err := work.HashOf(r.plan.Config, p.Route)
		if err != nil {
			return err
		}
		now := work.Route{ID: p.ID, Hash: hash, Partitions: p.Workers.Partitions, Made: p.EmitProgram != nil}
		if r.sinks[p.ID] = old.sinks[p.ID]; r.sinks[p.ID] == nil || r.sinks[p.ID].Route() != now {
			r.sinks[p.ID] = r.outbox.Sink(now)
		}
	}
	return nil
}

// only reports whether a sink of the configuration is used by these routes only.
func (r *remote) only(sink string) (only bool) {
	for i := range r.plan.Routes {
		p := &r.plan.Routes[i]
		if slices.ContainsFunc(p.To, func(target config.Target) bool { return target.Sink == sink }) {
			if !r.has(p) {
				return false
			}
			only = true
		}
	}
	return only
}

// replace replaces the handler and the targets of a route by its work sink. Batches for the handler
// are made by the workers.
func (r *remote) replace(route *spec.Settings) {
	sink := r.sinks[route.ID]
	if sink == nil {
		return
	}
	to := spec.NamedSink{Name: work.SinkName, Version: sink.Version(), Sink: sink, Of: route.Name, InOrder: true}
	for _, target := range route.Sinks {
		to.Behind = append(to.Behind, target.Name)
	}
	route.Sinks = []spec.NamedSink{to}
	route.Batch = spec.Batch{Size: fence.MaxMessages}
	route.Concurrency = max(route.Concurrency, workConcurrency)
	route.Retry.MaxAge = workMaxAge // retry.maxAge is about the sinks, which the workers have
}

// version identifies the sink of a route; empty: it has none.
func (r *remote) version(id string) string {
	if sink := r.sinks[id]; sink != nil {
		return sink.Version()
	}
	return ""
}

// Announce tells the workers about the routes, whose configuration runs now.
func (r *remote) Announce() {
	if r.outbox != nil {
		r.outbox.Use(slices.Collect(maps.Values(r.sinks)))
	}
}

// Retire stops the passing of deltas to the workers for the routes that next removes or handles in
// this process, and waits until the workers have handled all that was passed: otherwise two
// processes might handle the deltas of one object at a time. resume lets the routes go on as
// before.
func (r *remote) Retire(ctx context.Context, next *remote) (resume func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, retireTimeout)
	defer cancel()
	var retired []*work.Sink
	resume = func() {
		for _, sink := range retired {
			sink.Resume()
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.sinks)) {
		if next.sinks[id] != nil { // its workers stay
			continue
		}
		k := slices.IndexFunc(r.plan.Routes, func(p compile.Route) bool { return p.ID == id })
		name, sink := r.plan.Routes[k].Name, r.sinks[id]
		// Before the question: also a sink that is retired in vain has to be resumed.
		retired = append(retired, sink)
		waiting, err := sink.Retire(ctx)
		if err != nil {
			return resume, fmt.Errorf("route %s is without workers now, and it is unknown whether these have handled all its deltas: %w: %w", name, err, ErrWorkersBusy)
		}
		if waiting {
			return resume, fmt.Errorf("route %s is without workers now: %w; see router status", name, ErrWorkersBusy)
		}
	}
	return resume, nil
}
