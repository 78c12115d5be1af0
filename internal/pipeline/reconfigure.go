package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// finishTimeout is how long a changed or removed route may continue with its batches until they are
// cancelled, and abandonTimeout how long to wait for them then. Cancelled batches are retried.
const (
	finishTimeout  = 30 * time.Second
	abandonTimeout = 5 * time.Second
)

// FinishBound is the longest time for which [Change.Finish] waits for batches.
const FinishBound = finishTimeout + abandonTimeout

// Change is another set of routes, ready to replace the present one. The order is
// [Pipeline.Prepare], [Pipeline.Yield], [Change.Swap] while no delta is between Admit and its
// commit, [Change.Existing] at the same moment, then [Change.Finish].
type Change struct {
	pipeline *Pipeline
	next     *routing
	breakers map[string]*deliver.Sink
	added    []*route.Route
	changed  []changed
	removed  []*route.Route
}

// changed is a route that gets another generation.
type changed struct {
	route     *route.Route
	old, next *route.Generation
	installed <-chan struct{} // see route.Route.Install
}

// Prepare prepares the next set of routes, without an effect yet. Each is matched by id:
//   - The same id and version as before: the route is unchanged.
//   - The same id, and another version or name: the route keeps its backlog. Pending deltas are
//     delivered regardless of the new filter, by the new handler, to the new sinks, except those
//     that have them already.
//   - Another id: the route is new.
//
// There is one Change at a time: the previous one is finished or abandoned before. The error names
// a route that cannot work.
func (p *Pipeline) Prepare(routes []spec.Settings) (*Change, error) {
	if err := spec.Check(routes); err != nil {
		return nil, err
	}
	c := &Change{pipeline: p, next: &routing{downstream: map[string]*route.Route{}}, breakers: map[string]*deliver.Sink{}}
	entries := make([]filters.Entry, len(routes))
	for i, rc := range routes {
		entries[i] = c.add(rc.WithDefaults())
	}
	for _, r := range p.now.Load().routes {
		if !slices.Contains(c.next.routes, r) {
			c.removed = append(c.removed, r)
		}
	}
	c.next.table = filters.NewTable(entries)
	return c, nil
}

// add adds a new or existing route. It returns its entry in the filter table.
func (c *Change) add(rc spec.Settings) filters.Entry {
	p := c.pipeline
	r := p.now.Load().byID(rc.ID)
	var next *route.Generation
	switch {
	case r == nil:
		next = c.generation(&rc, c.birth(&rc))
		r = route.New(p.shared, next)
		c.added = append(c.added, r)
	case r.Settings().Name == rc.Name && r.Settings().Version == rc.Version && rc.Version != "":
		next = r.Generation()
		next.KeepBreakers(c.breakers)
	default:
		next = c.generation(&rc, r.Settings().Born())
		c.changed = append(c.changed, changed{route: r, old: r.Generation(), next: next})
	}
	c.next.add(r, next.Settings)
	return next.Entry()
}

// generation returns the next generation of a route. Sinks that have not changed keep their
// breakers.
func (c *Change) generation(rc *spec.Settings, born int) *route.Generation {
	for _, s := range rc.Sinks {
		if b := c.pipeline.breakers[s.Breaker()]; b != nil && s.Version != "" {
			c.breakers[s.Breaker()] = b
		}
	}
	if c.pipeline.cfg.Store == nil {
		rc.Disk = 0
	}
	return route.NewGeneration(c.pipeline.shared, rc, born, c.breakers)
}

// add adds a route with its next settings.
func (now *routing) add(r *route.Route, s *spec.Settings) {
	now.routes = append(now.routes, r)
	if s.HasCondition() {
		now.conditional = append(now.conditional, r)
	}
	if s.Downstream {
		now.downstream[s.Name] = r
	}
	if s.Hold > 0 {
		now.holding = append(now.holding, r)
	}
}

// birth returns the epoch in which a new route appears.
func (c *Change) birth(rc *spec.Settings) int {
	p := c.pipeline
	born := p.epoch + 1
	if p.life.ctx == nil {
		born = 0
	}
	if rc.Known {
		born--
	}
	return born
}

// New returns the ids of the routes that did not exist before. Their saved state is restored with
// [Change.Restore].
func (c *Change) New() (ids []string) {
	for _, r := range c.added {
		ids = append(ids, r.Settings().ID)
	}
	return ids
}

// Kept returns the names of the unchanged routes.
func (c *Change) Kept() (names []string) {
	for _, r := range c.next.routes {
		if !slices.Contains(c.added, r) && !slices.ContainsFunc(c.changed, func(ch changed) bool { return ch.route == r }) {
			names = append(names, r.Settings().Name)
		}
	}
	return names
}

// Restore is [Pipeline.Restore] for a route of [Change.New]. It is called before Swap.
func (c *Change) Restore(id string, pending []checkpoint.Pending, backlog checkpoint.Backlog) error {
	for _, r := range c.added {
		if r.Settings().ID == id {
			return r.Restore(pending, backlog)
		}
	}
	return nil
}

// Abandon removes the metrics that Prepare created, and closes the new routes, which returns what
// they restored to the shares of their owners. The change is not swapped.
func (c *Change) Abandon() {
	for _, r := range c.added {
		r.Leave()
		r.Retire()
		forgetMetrics(c.pipeline, r.Settings())
	}
	for _, ch := range c.changed {
		forgetMetrics(c.pipeline, ch.next.Settings)
	}
}

// Yield ends all waits for room in Admit until end is called: a full route exceeds its capacity a
// little.
func (p *Pipeline) Yield() (end func()) { return p.shared.Yield.Begin() }

// Swap makes the routes of the change the ones that Admit evaluates. It does not wait. The caller
// makes sure that no delta is between its Admit and its commit. A changed route delivers by its new
// generation once the batches of the old one have ended.
func (c *Change) Swap() {
	p := c.pipeline
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	p.shared.Chains.Lock()
	defer p.shared.Chains.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch++
	p.breakers = c.breakers
	for i := range c.changed {
		ch := &c.changed[i]
		ch.installed = ch.route.Install(p.life.ctx, ch.next)
		if !p.life.closed {
			ch.route.StartTimers()
		}
	}
	p.removed = append(p.removed, c.removed...)
	p.now.Load().count()
	p.now.Store(c.next)
}

// Existing evaluates d, a delta of an existing object, for the new routes that want such deltas.
// The result is like that of [Pipeline.Admit]; no source waits for room.
func (c *Change) Existing(ctx context.Context, d *event.Delta) event.Admission {
	return existing(ctx, d, c.added)
}

// Finish starts the new routes, and waits until the handlers and sinks that are no longer used are
// idle. Batches of changed or removed routes are finished, for at most half a minute and as long as
// ctx is not done. Handlers and sinks that ignore their context may continue to run.
func (c *Change) Finish(ctx context.Context) {
	p := c.pipeline
	p.life.mu.Lock()
	for _, r := range c.added {
		p.life.run(r)
	}
	p.life.mu.Unlock()
	c.end(ctx)
	p.life.mu.Lock()
	if !p.life.closed {
		for _, ch := range c.changed {
			ch.route.Workers().StartMissing()
		}
	}
	p.life.mu.Unlock()
	for _, ch := range c.changed {
		if ch.old.Name != ch.next.Name {
			forgetMetrics(p, ch.old.Settings)
		} else {
			spec.ForgetSeries(p.cfg.Metrics, ch.old.Settings, ch.next.Settings)
		}
	}
	for _, r := range c.removed {
		c.leave(r)
	}
}

// end waits until no batch uses an old generation. A handler with a timeout is cancelled after
// one timeout, because a batch may be many calls, each of which may time out.
func (c *Change) end(ctx context.Context) {
	p := c.pipeline
	ended := make(chan struct{})
	old := c.outOfUse()
	// Removed routes take no more batches; a handler gets the time of one call.
	p.life.mu.Lock()
	for _, r := range c.removed {
		r.Workers().Stop()
	}
	for _, cfg := range old {
		if h, ok := cfg.Handler.(plugins.Timed); ok {
			defer time.AfterFunc(h.Timeout(), cfg.Abort).Stop()
		}
	}
	p.life.mu.Unlock()
	go func() {
		for _, ch := range c.changed {
			<-ch.installed
		}
		for _, r := range c.removed {
			r.Workers().Wait()
		}
		close(ended)
	}()
	// Ask, then cancel, then go on without them.
	timeout := time.NewTimer(finishTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
	case <-ctx.Done():
	}
	for _, cfg := range old {
		cfg.Cancel()
	}
	timeout.Reset(abandonTimeout)
	select {
	case <-ended:
		return
	case <-timeout.C:
	}
	p.log.Warn("a handler or sink of the previous configuration does not return; its deltas are retried and may be delivered twice")
	c.abandon()
}

// outOfUse returns the old generations of routes that have started.
func (c *Change) outOfUse() (old []*route.Generation) {
	for _, ch := range c.changed {
		old = append(old, ch.old)
	}
	for _, r := range c.removed {
		old = append(old, r.Generation())
	}
	return slices.DeleteFunc(old, func(g *route.Generation) bool { return !g.Runs() })
}

// abandon abandons the workers that still have a batch of an old generation.
func (c *Change) abandon() {
	c.pipeline.shared.Chains.Lock()
	defer c.pipeline.shared.Chains.Unlock()
	for _, ch := range c.changed {
		ch.route.Abandon()
	}
}

// leave ends a removed route. Without a Store its backlog is lost.
func (c *Change) leave(r *route.Route) {
	p := c.pipeline
	p.shared.Chains.Lock()
	defer p.shared.Chains.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Leave()
	if p.cfg.Store == nil {
		p.removed = slices.DeleteFunc(p.removed, (*route.Route).Retire)
	}
	forgetMetrics(p, r.Settings())
	if s := r.Status(); s.Pending > 0 {
		p.log.Warn("route removed with pending deltas; they are lost without a state folder, and otherwise restored if the route is configured again",
			slog.String("route", s.Name), slog.Int("pending", s.Pending), slog.Bool("kept", p.cfg.Store != nil))
	}
}

// RestoreRules is [Pipeline.RestoreRules] for a route of [Change.New]. It is called before Swap.
func (c *Change) RestoreRules(id string, records []checkpoint.RuleRecord) error {
	i := slices.IndexFunc(c.added, func(r *route.Route) bool { return r.Settings().ID == id })
	if i < 0 || len(records) == 0 {
		return nil
	}
	return c.added[i].RestoreRules(records)
}

// forgetMetrics removes the series of a route, unless there is a route of that name.
func forgetMetrics(p *Pipeline, of *spec.Settings) {
	if p.now.Load().byName(of.Name) == nil {
		p.cfg.Metrics.ForgetRoute(of.Name)
	}
}
