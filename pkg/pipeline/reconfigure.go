package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// How long a route that is changed or removed may go on with the batches that it has, until they are given up, and until they are no
// longer waited for. What was given up is tried again.
const (
	finishTimeout = 30 * time.Second
	giveUpTimeout = 5 * time.Second
)

// Change is another set of routes, ready to take the place of the present one. The order is [Pipeline.Prepare], [Pipeline.Yield],
// [Change.Swap] while no delta is between Admit and its commit, [Change.Existing] at the same moment, then [Change.Finish].
type Change struct {
	pipeline *Pipeline
	next     *routing
	breakers map[string]*breaker
	pairs    []pair
	removed  []*route
}

// pair is a route and the one that it takes over from; nil: it is new.
type pair struct{ route, from *route }

// Prepare makes the routes that are to run from now on, and changes nothing yet. A route of the same name and version stays as it
// is. One of the same name, or whose Was is the name of a route that is not there any more, takes over what that one owes: delivered
// whatever its filter says, by its handler to its sinks, without those that have it already. The others are new.
//
// There is one Change at a time: none is prepared before the last one was finished, or given up without having been swapped.
// The error names a route that cannot work, or wraps [ErrWaiting]; with that one the Change is to be abandoned.
func (p *Pipeline) Prepare(routes []Route) (*Change, error) {
	now := p.now.Load()
	find := func(name string) *route {
		i := slices.IndexFunc(now.routes, func(r *route) bool { return r.cfg.Name == name })
		if i < 0 {
			return nil
		}
		return now.routes[i]
	}
	c := &Change{pipeline: p, next: &routing{fed: map[string]*route{}}, breakers: map[string]*breaker{}}
	gone := make(map[*route]bool, len(now.routes))
	for _, r := range now.routes {
		gone[r] = true
	}
	for _, rc := range routes {
		if r := find(rc.Name); r != nil {
			delete(gone, r)
		}
	}
	if err := checkFeeds(routes); err != nil {
		return nil, err
	}
	entries := make([]filters.Entry, len(routes))
	for i, rc := range routes {
		if err := rc.check(); err != nil {
			return nil, err
		}
		r := find(rc.Name)
		if was := find(rc.Was); r == nil && gone[was] {
			r = was
			delete(gone, was)
		}
		r = c.add(rc.withDefaults(), r)
		entries[i] = r.entry()
	}
	for _, r := range now.routes {
		if gone[r] {
			c.removed = append(c.removed, r)
		}
	}
	c.next.table = filters.NewTable(entries)
	for _, r := range c.next.routes {
		if r.isLevel() {
			c.next.levels = append(c.next.levels, r)
		}
		if r.cfg.Fed {
			c.next.fed[r.cfg.Name] = r
		}
		if r.cfg.Gone > 0 {
			c.next.lasting = append(c.next.lasting, r)
		}
	}
	return c, c.waits()
}

// waits returns an error if a route that is at work could not be exchanged now.
func (c *Change) waits() error {
	for _, r := range c.old() {
		if r.waits() {
			return fmt.Errorf("route %q cannot change now: %w", r.cfg.Name, ErrWaiting)
		}
	}
	return nil
}

// old returns the routes that are changed or removed.
func (c *Change) old() []*route {
	old := slices.Clone(c.removed)
	for _, pair := range c.pairs {
		if pair.from != nil {
			old = append(old, pair.from)
		}
	}
	return old
}

// add adds a route, which is at work already or takes over from another one, if that is not nil.
func (c *Change) add(rc Route, from *route) *route {
	p := c.pipeline
	if from != nil && from.cfg.Name == rc.Name && from.cfg.Version == rc.Version && rc.Version != "" && !rc.Renew {
		c.next.routes = append(c.next.routes, from)
		for i, s := range from.cfg.Sinks {
			if from.sinks[i] != nil {
				c.breakers[s.Name+"\x00"+s.Version] = from.sinks[i]
			}
		}
		return from
	}
	for _, s := range rc.Sinks {
		key := s.Name + "\x00" + s.Version
		if b := p.breakers[key]; b != nil && s.Version != "" {
			c.breakers[key] = b
		}
	}
	r := newRoute(rc, p.birth(rc, from), p, c.breakers)
	r.settled = r.settled && from == nil
	if from != nil && from.cfg.Name != rc.Name && p.cfg.Store != nil {
		r.heir.was = from.cfg.Name
	}
	c.next.routes = append(c.next.routes, r)
	c.pairs = append(c.pairs, pair{r, from})
	return r
}

// birth says since when a route is there.
func (p *Pipeline) birth(rc Route, from *route) int {
	born := p.epoch + 1
	switch {
	case from != nil:
		return from.born
	case p.ctx == nil:
		born = 0
	}
	if rc.Known {
		born--
	}
	return born
}

// New returns the names of the routes that take over from none. What was saved of them comes back with [Change.Restore].
func (c *Change) New() (names []string) {
	for _, p := range c.pairs {
		if p.from == nil {
			names = append(names, p.route.cfg.Name)
		}
	}
	return names
}

// Kept returns the names of the routes that stay as they are.
func (c *Change) Kept() (names []string) {
	for _, r := range c.next.routes {
		if !slices.ContainsFunc(c.pairs, func(p pair) bool { return p.route == r }) {
			names = append(names, r.cfg.Name)
		}
	}
	return names
}

// Restore is [Pipeline.Restore] for a route of [Change.New]. It is called before Swap.
func (c *Change) Restore(name string, owed []checkpoint.Owed, debt checkpoint.Debt) error {
	for _, p := range c.pairs {
		if p.from == nil && p.route.cfg.Name == name {
			return p.route.restore(owed, debt)
		}
	}
	return nil
}

// Abandon takes back what Prepare left to be seen. The change is not swapped.
func (c *Change) Abandon() {
	for _, pair := range c.pairs {
		c.pipeline.forgetMetrics(pair.route)
	}
}

// Yield lets every Admit that waits for room go on at once, and those that come until end is called: a route that is full owes a
// little more then than it should.
func (p *Pipeline) Yield() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.yield)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.yield = make(chan struct{})
	}
}

func (p *Pipeline) yielding() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.yield
}

// Swap makes the routes of the change those that deltas are evaluated for. It does not wait. The caller makes sure that no delta is
// between its Admit and its commit. What the changed routes owe stays where it is until Finish.
func (c *Change) Swap() {
	p := c.pipeline
	p.feeds.Lock()
	defer p.feeds.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch++
	p.breakers = c.breakers
	for _, pair := range c.pairs {
		if pair.from != nil {
			p.leaving = append(p.leaving, pair.from)
		}
		pair.route.follow(pair.from)
	}
	p.leaving = append(p.leaving, c.removed...)
	p.now.Load().count()
	p.now.Store(c.next)
}

// Existing evaluates d, which is about an object that was there before, for the new routes that want such. The result is like that of
// [Pipeline.Admit]; nobody waits for room.
func (c *Change) Existing(ctx context.Context, d *event.Delta) (commit func()) {
	a := &admission{delta: d}
	for _, pair := range c.pairs {
		if pair.from == nil {
			a.existing(ctx, pair.route)
		}
	}
	return a.result()
}

// Finish lets the new routes work, and those that were changed or removed come to an end: what they have begun is brought to its end
// as far as that does not take longer than half a minute, or than ctx; what they owe then passes to their successors, which work
// from then on. It returns when nothing of the old routes uses a handler or a sink any more, but for what does not heed its context.
func (c *Change) Finish(ctx context.Context) {
	p := c.pipeline
	p.lifecycle.Lock()
	for _, pair := range c.pairs {
		if pair.from == nil && pair.route.heir.was == "" {
			p.run(pair.route) //nolint:contextcheck // it runs as long as Start says
		}
	}
	p.lifecycle.Unlock()
	p.end(ctx, c.old())
	for _, pair := range c.pairs {
		switch {
		case pair.route.heir.was != "":
			p.inherit(ctx, pair.from, pair.route)
		case pair.from != nil:
			p.handOn(pair.from, pair.route) //nolint:contextcheck // it runs as long as Start says
		}
	}
	for _, r := range c.removed {
		p.leave(r)
	}
}

// end stops the workers of the routes.
func (p *Pipeline) end(ctx context.Context, routes []*route) {
	p.lifecycle.Lock()
	for _, r := range routes {
		if r.stop != nil {
			r.stop()
		}
	}
	p.lifecycle.Unlock()
	ended := make(chan struct{})
	go func() {
		for _, r := range routes {
			r.workers.Wait()
		}
		close(ended)
	}()
	timeout := time.NewTimer(finishTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
	case <-ctx.Done():
	}
	for _, r := range routes {
		if r.cancel != nil {
			r.cancel()
		}
	}
	timeout.Reset(giveUpTimeout)
	select {
	case <-ended:
	case <-timeout.C:
		p.log.Warn("a handler or sink does not return from a route that was changed; what it has is tried again, and may come twice")
	}
}

// handOn makes what a route owes the debt of its successor, which starts to work.
func (p *Pipeline) handOn(from, to *route) {
	p.feeds.Lock()
	p.mu.Lock()
	from.bereft = true
	to.takeOver(from)
	p.leaving = slices.DeleteFunc(p.leaving, func(r *route) bool { return r == from })
	if from.cfg.Name != to.cfg.Name {
		p.forgetMetrics(from)
	} else {
		p.forgetRules(from, to)
	}
	p.mu.Unlock()
	p.feeds.Unlock()
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.run(to)
}

// leave ends a route that is not there any more. What it owes is in the checkpoint, or nowhere.
func (p *Pipeline) leave(r *route) {
	p.feeds.Lock()
	defer p.feeds.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	r.bereft = true
	p.leaving = slices.DeleteFunc(p.leaving, func(l *route) bool { return l == r })
	if p.cfg.Store != nil {
		p.left = append(p.left, r)
	} else {
		r.retire()
	}
	p.forgetMetrics(r)
	if s := r.status(); s.Owed > 0 {
		p.log.Warn("a route was removed that owed deltas; without a state folder they are lost, with one they come back with the route",
			slog.String("route", s.Name), slog.Int("owed", s.Owed), slog.Bool("kept", p.cfg.Store != nil))
	}
}

// retire has time make nothing more of what the rules of a route know that was removed, once that was handed over.
func (r *route) retire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.level != nil {
		r.level.Close()
		r.level = nil
	}
	if r.absent != nil {
		r.absent.Close()
		r.absent = nil
	}
}

// forgetMetrics removes the series of a route, unless another one has its name by now.
func (p *Pipeline) forgetMetrics(r *route) {
	name := r.cfg.Name
	if !slices.ContainsFunc(p.now.Load().routes, func(o *route) bool { return o.cfg.Name == name }) {
		p.cfg.Metrics.ForgetRoute(name)
	}
}
