package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/route"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Pipeline runs the routes. The order of its life is New, Start, Drain, Close; Admit may be called
// from New on, from several goroutines at once, and is refused from Drain on. What it promises is
// in the package comment.
type Pipeline struct {
	cfg    Config // without Routes
	log    *slog.Logger
	shared *route.Env
	now    atomic.Pointer[routing]
	life   life

	mu       sync.Mutex     // guards what follows; a route's own lock may be taken under it
	removed  []*route.Route // whose last changes the checkpoint has not got yet
	breakers map[string]*deliver.Sink
	epoch    int // how often the routes were exchanged
}

// routing is the routes at one time, and the table that finds those that want a delta.
type routing struct {
	routes      []*route.Route
	conditional []*route.Route          // those with a condition
	holding     []*route.Route          // those that hold deletes
	downstream  map[string]*route.Route // the downstream routes, by name
	table       *filters.Table          // in the order of routes
}

// New makes a pipeline that has not started. The error names the route that cannot work.
func New(cfg Config) (*Pipeline, error) {
	cfg = cfg.withDefaults()
	routes := cfg.Routes
	cfg.Routes = nil
	p := &Pipeline{cfg: cfg, log: cfg.Log, breakers: map[string]*deliver.Sink{}, life: life{stopping: make(chan struct{})}}
	p.shared = newEnv(p)
	p.now.Store(&routing{table: filters.NewTable(nil)})
	c, err := p.Prepare(routes)
	if err != nil {
		return nil, err
	}
	p.now.Store(c.next)
	p.breakers = c.breakers
	cfg.Metrics.BeforeScrape(gauges{p}.count)
	return p, nil
}

// Start runs the workers until Close, or abruptly until ctx is done. It is called once.
func (p *Pipeline) Start(ctx context.Context) {
	l := &p.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.cancel = context.WithCancel(ctx)
	for _, r := range p.now.Load().routes {
		l.run(r)
	}
	p.shared.Workers.Go(func() { gauges{p}.measure(l.ctx) })
}

// Drain takes no more deltas and delivers what is pending, trying again what waits for a retry.
// Routes that are paused, or not ready, are not waited for, nor those that have nothing pending but
// what one of these has no room for. With a [Store], sinks that are unavailable are not waited for
// either, as soon as that is known, and what waits for more (see Debounce and Grouped) stays
// pending; without one that is delivered at once. The error, if something is pending in the end or
// when ctx is done, says how much by which route.
func (p *Pipeline) Drain(ctx context.Context) error {
	p.life.stop()
	for _, r := range p.now.Load().routes {
		r.Crew().Drain()
	}
	return p.Settle(ctx)
}

// Settle waits until nothing is pending, but by routes that are paused or not ready, and lets the
// pipeline take deltas meanwhile and after. Nothing is hurried: what waits for a retry waits. The
// error is that of [Pipeline.Drain]. Of Settle, Drain and Idle one may run at a time.
func (p *Pipeline) Settle(ctx context.Context) error {
	_ = p.shared.Progress.Wait(ctx, func() bool {
		return p.anywhere(func(r *route.Route) bool { return r.Moving() && !r.Stands() })
	})
	return undelivered(p.Status())
}

// Idle waits until the routes have nothing to do unless the clock moves, something comes, or a
// route becomes ready: their backlogs wait for a later time, and the timers for that are set. With
// a clock that is moved by hand this is the moment to do so. What is on disk is not waited for. The
// error is that of ctx, and says what is pending at which route.
func (p *Pipeline) Idle(ctx context.Context) error {
	err := p.shared.Progress.Wait(ctx, func() bool {
		return p.anywhere(func(r *route.Route) bool { return !r.Idle() })
	})
	if err != nil {
		return errors.Join(err, undelivered(p.Status()))
	}
	return nil
}

// anywhere reports whether something is true of any route.
func (p *Pipeline) anywhere(what func(*route.Route) bool) bool {
	return p.shared.Chains.Anywhere(func() bool { return slices.ContainsFunc(p.now.Load().routes, what) })
}

// undelivered returns an error that says what is still pending; nil: nothing is, but for what a
// drain leaves to the next start.
func undelivered(routes []Status) error {
	var still []string
	for _, s := range routes {
		if n := s.Pending - s.Kept; n > 0 {
			still = append(still, fmt.Sprintf("route %q %d", s.Name, n))
		}
	}
	if len(still) == 0 {
		return nil
	}
	return fmt.Errorf("deltas still pending: %s", strings.Join(still, ", "))
}

// Close stops the workers and waits for them, no longer than ctx: a handler or sink that does not
// heed its context outlives it, and the error says so. What is pending is forgotten, but for what
// [Pipeline.Dirty] still hands over. Close may be called without Start, and again.
func (p *Pipeline) Close(ctx context.Context) error {
	p.life.stop()
	p.shared.Wheel.Close()
	if !p.life.end() {
		return nil
	}
	gauges{p}.count()
	done := make(chan struct{})
	go func() { p.shared.Workers.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a handler or sink did not return when it was stopped: %w", ctx.Err())
	}
}

// Status returns the state of each route, in the order of the configuration.
func (p *Pipeline) Status() []Status {
	routes := p.now.Load().routes
	all := make([]Status, len(routes))
	for i, r := range routes {
		all[i] = r.Status()
	}
	return all
}

// Pending returns how many deltas are pending at the named route, 0 if there is no such route.
func (p *Pipeline) Pending(route string) int {
	for _, r := range p.now.Load().routes {
		if r.Config().Name == route {
			return r.Status().Pending
		}
	}
	return 0
}

// SinkStatus is a sink that is unavailable.
type SinkStatus struct {
	Name   string
	Reason string    // of the last write that failed
	Since  time.Time // when it was left alone first
	Until  time.Time // when it is tried again
}

// Unavailable returns the sinks that are left alone because they took nothing, by name. Their
// routes wait.
func (p *Pipeline) Unavailable() (down []SinkStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.breakers)) {
		b := p.breakers[id]
		if s := b.Status(); s.Open {
			down = append(down, SinkStatus{Name: b.Name(), Reason: s.Err.Error(), Since: s.Since, Until: s.Until})
		}
	}
	return down
}
