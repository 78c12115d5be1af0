package route

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
)

// Config is a configuration of a route, with the sinks that it delivers to. It is immutable after
// its installation. A worker captures it at the beginning of a batch, and finishes the batch with
// it.
type Config struct {
	*spec.Config

	sinks    []*deliver.Sink // as in Route.Sinks; nil: the target is a route
	delivery deliver.Config

	// The contexts of the users of the configuration, created with the workers of the route.
	ctx, handling, current context.Context    //nolint:containedctx // ctx: all; handling: the calls of the handler; current: until another configuration is installed
	cancel, abort, replace context.CancelFunc // end them
}

// NewConfig returns the configuration of a route that appeared in the epoch born. breakers contains
// the sinks of other routes, by spec.NamedSink.Breaker, which are shared; new ones are added.
func NewConfig(env *Env, s *spec.Settings, born int, breakers map[string]*deliver.Sink) *Config {
	c := &Config{Config: spec.NewConfig(s, born, env.Metrics, env.Log)}
	if env.Part {
		c.Count.OmitGauges()
	}
	c.delivery = deliver.Config{Config: c.Config, InOrder: c.WritesInOrder(), Permit: env.Permit}
	for i := range c.Sinks {
		named := &c.Sinks[i]
		sink := breaker(env, named, breakers)
		if sink != nil {
			sink.Limit(c.Retry.Policy())
		}
		c.sinks = append(c.sinks, sink)
		c.delivery.Targets = append(c.delivery.Targets, deliver.Target{Name: named.Name, Sink: sink})
	}
	return c
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
func (c *Config) KeepBreakers(breakers map[string]*deliver.Sink) {
	for i, s := range c.Sinks {
		if c.sinks[i] != nil {
			breakers[s.Breaker()] = c.sinks[i]
		}
	}
}

// begin creates the contexts. all is the context of the pipeline, route that of the route, which
// ends when the route is removed.
func (c *Config) begin(all, route context.Context) {
	c.ctx, c.cancel = context.WithCancel(all)
	c.handling, c.abort = context.WithCancel(c.ctx)
	c.current, c.replace = context.WithCancel(route)
}

// Runs reports whether workers may have used the configuration.
func (c *Config) Runs() bool { return c.ctx != nil }

// Abort cancels the calls of the handler.
func (c *Config) Abort() { c.abort() }

// Cancel cancels everything that uses the configuration.
func (c *Config) Cancel() { c.cancel() }

// Install replaces the configuration of the route, while no delta is between its Admit and its
// commit. New deltas and the rules use it at once. Pending deltas are moved when the last batch of
// the old configuration has ended, see reassignLanes; then the returned channel is closed. ctx is
// that of Start.
func (r *Route) Install(ctx context.Context, next *Config) (installed <-chan struct{}) {
	if r.workers.taking != nil {
		next.begin(ctx, r.workers.taking)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.Config()
	r.config.Store(next)
	if r.paused.by != byUser { // the new configuration may have mended the cause
		r.paused.end()
	}
	r.backlog.Configure(next.Config)
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

// Abandon abandons the workers with a batch of the old configuration. Their deltas stay pending.
func (r *Route) Abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backlog.Old == nil {
		return
	}
	for _, w := range r.workers.busy {
		w.abandoned = true
		r.workers.count--
	}
	r.workers.busy = nil
	r.reassignLanes()
}

// reassignLanes assigns lanes to all pending deltas by the installed configuration. The lock is
// held, and no worker has a batch.
func (r *Route) reassignLanes() {
	r.backlog.Adopt(func(letter uint64) { delete(r.redelivering, letter) })
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
	r.backlog.Rules.Close()
	r.backlog.Room.Leave()
	return true
}
