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

// Pipeline runs the routes. Its methods are called in the order New, Start, Drain, Close. Admit may
// be called from New on, concurrently, and returns [ErrStopped] from Drain on. The package comment
// lists its guarantees.
type Pipeline struct {
	cfg    Config // without Routes
	log    *slog.Logger
	shared *route.Env
	now    atomic.Pointer[routing]
	life   life

	// guards the following fields; the lock of a route may be taken under it
	mu       sync.Mutex
	removed  []*route.Route // removed routes whose last changes are not in the checkpoint yet
	breakers map[string]*deliver.Sink
	epoch    int // how often the routes were exchanged
}

// routing is the present routes, and the filter table that finds those that want a delta.
type routing struct {
	routes      []*route.Route
	conditional []*route.Route          // those with a condition
	holding     []*route.Route          // those that hold deletes
	downstream  map[string]*route.Route // the downstream routes, by name
	table       *filters.Table          // in the order of routes
}

// New returns a pipeline that has not started. The error names the route that cannot work.
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
	if !cfg.Part {
		cfg.Metrics.BeforeScrape(p.countRoutes)
	}
	return p, nil
}

// Start runs the workers until Close, or until ctx is done, which ends them abruptly. It is called
// once.
func (p *Pipeline) Start(ctx context.Context) {
	l := &p.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.cancel = context.WithCancel(ctx)
	for _, r := range p.now.Load().routes {
		l.run(r)
	}
	if !p.cfg.Part {
		p.shared.Workers.Go(func() { p.measureGauges(l.ctx) })
	}
}

// Drain takes no more deltas and delivers the backlog, including retries. It does not wait for
//   - routes that are paused, not ready, or blocked only by such a route
//   - with a [Store], sinks that are found unavailable
//   - with a [Store], deltas in open windows (see Debounce and Grouped), which stay pending;
//     without a Store they are delivered at once
//
// If deltas are still pending in the end, or when ctx is done, the error contains their number by
// route.
func (p *Pipeline) Drain(ctx context.Context) error {
	p.life.stop()
	for _, r := range p.now.Load().routes {
		r.Workers().Drain()
	}
	return p.WaitDelivered(ctx)
}

// WaitDelivered waits until no delta is pending, except in routes that are paused or not ready. The
// pipeline continues to take deltas, and retries keep their delays. The error is that of
// [Pipeline.Drain]. Only one of WaitDelivered, Drain and Idle may run at a time.
func (p *Pipeline) WaitDelivered(ctx context.Context) error {
	_ = p.shared.Progress.Wait(ctx, func() bool {
		return p.anywhere(func(r *route.Route) bool { return r.Moving() && !r.Stands() })
	})
	return undelivered(p.Status())
}

// Idle waits until the routes have nothing to do until the clock advances, a delta comes, or a
// route becomes ready: their backlogs wait for a later time, and the timers are set. A test with a
// fake clock advances it then. Idle does not wait for deltas that are only on disk. The error is
// that of ctx, with the number of pending deltas by route.
func (p *Pipeline) Idle(ctx context.Context) error {
	err := p.shared.Progress.Wait(ctx, func() bool {
		return p.anywhere(func(r *route.Route) bool { return !r.Idle() })
	})
	if err != nil {
		return errors.Join(err, undelivered(p.Status()))
	}
	return nil
}

// anywhere reports whether a predicate holds for any route.
func (p *Pipeline) anywhere(what func(*route.Route) bool) bool {
	return p.shared.Chains.Anywhere(func() bool { return slices.ContainsFunc(p.now.Load().routes, what) })
}

// undelivered returns an error with the number of pending deltas by route; nil: there are none,
// except those that a drain leaves to the next start.
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

// Close stops the workers and waits for them until ctx is done: a handler or sink that ignores its
// context continues to run, and the error says so. Pending deltas are dropped, except those that
// [Pipeline.Dirty] still returns. Close may be called without Start, and more than once.
func (p *Pipeline) Close(ctx context.Context) error {
	p.life.stop()
	p.shared.Wheel.Close()
	if !p.life.end() {
		return nil
	}
	p.countRoutes()
	if p.cfg.Complaints == nil {
		defer p.shared.Complaints.Close()
	}
	done := make(chan struct{})
	go func() { p.shared.Workers.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a handler or sink did not return after its context was cancelled: %w", ctx.Err())
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

// Pending returns the number of pending deltas of the named route, 0 if there is no such route.
func (p *Pipeline) Pending(route string) int {
	for _, r := range p.now.Load().routes {
		if r.Settings().Name == route {
			return r.Status().Pending
		}
	}
	return 0
}

// SinkStatus is a sink that is unavailable.
type SinkStatus struct {
	Name   string
	Reason string    // of the last write that failed
	Since  time.Time // when its breaker opened
	Until  time.Time // when it is probed
}

// Unavailable returns the sinks whose breakers are open, by name. Their routes wait.
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
