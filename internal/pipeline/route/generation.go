package route

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// Generation is the use of one configuration by a route, from its installation until the next one:
// the settings, the sinks behind their breakers, and the contexts that end with it. It is immutable
// after its installation. A worker captures it at the beginning of a batch, and finishes the batch
// with it.
type Generation struct {
	*spec.Settings

	targets []deliver.Target // of Settings.Sinks, in their order

	// The contexts of the users of the generation, created with the workers of the route.
	ctx, handling, current context.Context    //nolint:containedctx // ctx: all; handling: the calls of the handler; current: until another generation is installed
	cancel, abort, replace context.CancelFunc // end them
}

// NewGeneration returns a generation of a route that appeared in the epoch born. breakers contains
// the sinks of other routes, by spec.NamedSink.Breaker, which are shared; new ones are added.
func NewGeneration(env *Env, s *spec.Settings, born int, breakers map[string]*deliver.Sink) *Generation {
	g := &Generation{Settings: s.Prepare(born, env.Metrics, env.Log)}
	if env.Part {
		g.Count().OmitGauges()
	}
	for i := range g.Sinks {
		named := &g.Sinks[i]
		sink := breaker(env, named, breakers)
		if sink != nil {
			sink.Limit(g.Retry.Policy())
		}
		g.targets = append(g.targets, deliver.Target{Name: named.Name, Sink: sink})
	}
	return g
}

// breaker returns the sink with its breaker; nil: the target is a route.
func breaker(env *Env, named *spec.NamedSink, breakers map[string]*deliver.Sink) *deliver.Sink {
	if named.Route != "" {
		return nil
	}
	key := named.Breaker()
	if breakers[key] == nil {
		breakers[key] = deliver.NewSink(named.Name, named.Of, named.Sink, env.Complaints, env.Clock)
	}
	return breakers[key]
}

// KeepBreakers adds the breakers of the sinks.
func (g *Generation) KeepBreakers(breakers map[string]*deliver.Sink) {
	for i, s := range g.Sinks {
		if sink := g.targets[i].Sink; sink != nil {
			breakers[s.Breaker()] = sink
		}
	}
}

// begin creates the contexts. all is the context of the pipeline, route that of the route, which
// ends when the route is removed.
func (g *Generation) begin(all, route context.Context) {
	g.ctx, g.cancel = context.WithCancel(all)
	g.handling, g.abort = context.WithCancel(g.ctx)
	g.current, g.replace = context.WithCancel(route)
}

// Runs reports whether workers may have used the generation.
func (g *Generation) Runs() bool { return g.ctx != nil }

// Abort cancels the calls of the handler.
func (g *Generation) Abort() { g.abort() }

// Cancel cancels everything that uses the generation.
func (g *Generation) Cancel() { g.cancel() }

// Install replaces the generation of the route, while no delta is between its Admit and its
// commit. ctx is that of Start. It begins an exchange:
//
//   - New deltas and the rules use the new generation at once. No batch is taken.
//   - When the last batch of the old generation has ended, or [Route.Abandon] was called, all
//     pending deltas get lanes by the new one, and the returned channel is closed.
func (r *Route) Install(ctx context.Context, next *Generation) (installed <-chan struct{}) {
	if r.workers.taking != nil {
		next.begin(ctx, r.workers.taking)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.Generation()
	next.Tally(&r.counts.Tally)
	r.generation.Store(next)
	if r.paused.by != byUser { // the new configuration may have mended the cause
		r.paused.end()
	}
	r.backlog.configure(next.Settings)
	done := make(chan struct{})
	r.installed = done
	if old.replace != nil {
		old.replace()
	}
	if len(r.workers.busy) == 0 {
		r.reassignLanes()
	}
	return done
}

// Abandon abandons the workers with a batch of the old generation. Their deltas stay pending.
func (r *Route) Abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.backlog.exchanging() {
		return
	}
	for _, w := range r.workers.busy {
		w.abandoned = true
		r.workers.count--
	}
	r.workers.busy = nil
	r.reassignLanes()
}

// reassignLanes assigns lanes to all pending deltas by the installed generation. The lock is
// held, and no worker has a batch.
func (r *Route) reassignLanes() {
	r.backlog.adoptAll(func(letter uint64) { delete(r.redelivering, letter) })
	clear(r.heldBack)
	close(r.installed)
	r.changed()
	r.workers.leader.Signal()
}

// Leave abandons the workers of a removed route.
func (r *Route) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, w := range r.workers.busy {
		w.abandoned = true
	}
}

// Retire closes the rules of a removed route after their last records were handed over. It returns
// false if the route is still in use.
func (r *Route) Retire() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		return false
	}
	r.backlog.rules.Close()
	r.backlog.room.leave()
	return true
}
