package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/rules"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// ErrStopped is the error of [Pipeline.Admit] once the pipeline takes no more deltas.
var ErrStopped = errors.New("the pipeline is stopped")

// ErrWaiting is wrapped by the error of [Pipeline.Prepare] while a route that would change still waits for what it inherits, see
// [Pipeline.Inherit].
var ErrWaiting = errors.New("what the route owes is not under its new name yet, because the state file cannot be written")

// gaugeInterval is how often the age of the oldest owed delta is measured.
const gaugeInterval = time.Second

// Pipeline runs the routes. The order of its life is New, Start, Drain, Close; Admit may be called from New on, from several
// goroutines at once, and is refused from Drain on. What it promises is in the package comment.
type Pipeline struct {
	cfg Config // without Routes
	log *slog.Logger
	now atomic.Pointer[routing]

	// feeds is read-locked while a route gives something to another one. Who holds it alone sees none of that half done. It is taken
	// before mu and the locks of the routes, never under one of them.
	feeds  sync.RWMutex
	handed atomic.Uint64 // how often that was done

	mu       sync.Mutex // guards what follows; a route's own lock may be taken under it
	leaving  []*route   // out of use, and still at work on a batch; what they owe has not moved yet
	left     []*route   // removed, and not yet handed over for the last time
	breakers map[string]*breaker
	wheel    *timer.Wheel
	census   *rules.Census
	yield    chan struct{} // closed while nobody may wait for room
	epoch    int           // how often the routes were exchanged
	passedOn []owing       // done with since the last cut
	saving   []owing       // done with, and their cut is not on disk yet

	onDisk atomic.Int64 // bytes of what all routes owe, at the last cut

	stopping  chan struct{}
	stopOnce  sync.Once
	progress  chan struct{} // a route owes nothing any more, has nothing to do at this moment, or was paused
	awaited   atomic.Bool   // somebody waits for progress
	lifecycle sync.Mutex
	ctx       context.Context //nolint:containedctx // of Start, for routes that come later
	cancel    context.CancelFunc
	closed    bool
	workers   sync.WaitGroup
}

// routing is the routes at one time, and the table that finds those that want a delta.
type routing struct {
	routes  []*route
	levels  []*route          // those with a condition
	lasting []*route          // those that wait for what comes back
	fed     map[string]*route // those that others feed, by name
	table   *filters.Table    // in the order of routes
}

// New makes a pipeline that has not started. The error names the route that cannot work.
func New(cfg Config) (*Pipeline, error) {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = timer.Real()
	}
	cfg.InFlight = or(cfg.InFlight, inFlight)
	if cfg.DeadLetters == nil {
		cfg.DeadLetters = &LogDeadLetters{Log: cfg.Log}
	}
	routes := cfg.Routes
	cfg.Routes = nil
	p := &Pipeline{
		cfg: cfg, log: cfg.Log, breakers: map[string]*breaker{}, yield: make(chan struct{}),
		stopping: make(chan struct{}), progress: make(chan struct{}, 1),
		wheel: timer.NewWheel(cfg.Clock), census: rules.NewCensus(),
	}
	p.now.Store(&routing{table: filters.NewTable(nil)})
	c, err := p.Prepare(routes)
	if err != nil {
		return nil, err
	}
	p.now.Store(c.next)
	p.breakers = c.breakers
	cfg.Metrics.BeforeScrape(p.countLate)
	return p, nil
}

// Start runs the workers until Close, or abruptly until ctx is done. It is called once.
func (p *Pipeline) Start(ctx context.Context) {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.ctx, p.cancel = context.WithCancel(ctx)
	for _, r := range p.now.Load().routes {
		if r.waits() {
			p.workers.Go(func() { p.inherit(p.ctx, nil, r) })
			continue
		}
		p.run(r) //nolint:contextcheck // it runs as long as Start says
	}
	p.workers.Go(func() { p.measure(p.ctx) })
}

// run starts the workers of a route. lifecycle is held.
func (p *Pipeline) run(r *route) {
	if p.ctx == nil || p.closed {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	taking, stop := context.WithCancel(ctx)
	r.cancel, r.stop = cancel, stop
	if r.isLevel() || r.cfg.Gone > 0 {
		r.mu.Lock()
		r.catching = true
		r.mu.Unlock()
		r.workers.Add(1)
		p.workers.Go(func() {
			defer r.workers.Done()
			r.catchUp(taking)
			r.caughtUp()
		})
	}
	if p.cfg.Store != nil {
		r.workers.Add(1)
		p.workers.Go(func() {
			defer r.workers.Done()
			r.refill(taking)
		})
	}
	for range r.cfg.Concurrency {
		r.workers.Add(1)
		p.workers.Go(func() {
			defer r.workers.Done()
			r.work(ctx, taking)
		})
	}
}

// Drain takes no more deltas and delivers what is owed, trying again what waits for a retry. Routes that are paused, or not ready, are
// not waited for, nor those that owe nothing but what one of these has no room for. What waits for more (see Debounce and Grouped) stays owed if there is a [Store], and is delivered at once if not. The error, if something is owed in the end or when ctx is done, says how much by which route.
func (p *Pipeline) Drain(ctx context.Context) error {
	p.stopOnce.Do(func() { close(p.stopping) })
	for _, r := range p.now.Load().routes {
		r.drain()
	}
	return p.Settle(ctx)
}

// Settle waits until nothing is owed, but by routes that are paused or not ready, and lets the pipeline take deltas meanwhile and
// after. Nothing is hurried: what waits for a retry waits. The error is that of [Pipeline.Drain]. Of Settle, Drain and Idle one may run at
// a time.
func (p *Pipeline) Settle(ctx context.Context) error {
	p.awaited.Store(true)
	defer p.awaited.Store(false)
	for p.moving() {
		select {
		case <-p.progress:
		case <-ctx.Done():
			return p.undelivered()
		}
	}
	return p.undelivered()
}

func (p *Pipeline) moving() bool {
	return p.anywhere(func(r *route) bool { return r.moving() && !p.stands(r) })
}

// Idle waits until the routes have nothing to do unless the clock moves, something comes, or a route becomes ready: what they owe
// waits for a later time, and the timers for that are set. With a clock that is moved by hand this is the moment to do so. What is on
// disk is not waited for. The error is that of ctx, and says what is owed by which route.
func (p *Pipeline) Idle(ctx context.Context) error {
	p.awaited.Store(true)
	defer p.awaited.Store(false)
	for p.atWork() {
		select {
		case <-p.progress:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.undelivered())
		}
	}
	return nil
}

func (p *Pipeline) atWork() bool {
	return p.anywhere(func(r *route) bool { return !r.isIdle() })
}

func (p *Pipeline) undelivered() error {
	var still []string
	for _, s := range p.Status() {
		if n := s.Owed - s.Kept; n > 0 {
			still = append(still, fmt.Sprintf("route %q %d", s.Name, n))
		}
	}
	if len(still) == 0 {
		return nil
	}
	return fmt.Errorf("deltas still owed: %s", strings.Join(still, ", "))
}

// Close stops the workers and waits for them, no longer than ctx: a handler or sink that does not heed its context outlives it, and
// the error says so. What is owed is forgotten, but for what [Pipeline.Dirty] still hands over. Close may be called without Start, and again.
func (p *Pipeline) Close(ctx context.Context) error {
	p.stopOnce.Do(func() { close(p.stopping) })
	p.wheel.Close()
	if !p.cease() {
		return nil
	}
	p.countLate()
	done := make(chan struct{})
	go func() { p.workers.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a handler or sink did not return when it was stopped: %w", ctx.Err())
	}
}

// cease tells the workers to end. It returns false if there are none.
func (p *Pipeline) cease() bool {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.cancel == nil {
		return false
	}
	p.closed = true
	p.cancel()
	return true
}

// RouteStatus is the state of a route, for readiness and humans.
type RouteStatus struct {
	Name    string
	Owed    int
	Kept    int       // of these, how many a drain leaves to the next start, because they wait for more
	OnDisk  int       // of these, how many are not in memory
	Oldest  time.Time // when the oldest owed delta was seen; zero: nothing is owed
	Waiting bool      // for what it looks up
	Paused  string    // why it stopped; empty: it did not
	HeldBy  string    // the route that it feeds and that has no room; empty: there is none
}

// Status returns the state of each route, in the order of the configuration.
func (p *Pipeline) Status() []RouteStatus {
	routes := p.now.Load().routes
	all := make([]RouteStatus, len(routes))
	for i, r := range routes {
		all[i] = r.status()
	}
	return all
}

// Owed returns how many deltas the named route owes, 0 if there is no such route.
func (p *Pipeline) Owed(route string) int {
	for _, r := range p.now.Load().routes {
		if r.cfg.Name == route {
			return r.status().Owed
		}
	}
	return 0
}

// measure keeps the gauges that change by themselves.
func (p *Pipeline) measure(ctx context.Context) {
	ticker := time.NewTicker(gaugeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := p.cfg.Clock.Now()
			p.countLate()
			for _, r := range p.now.Load().routes {
				age := 0.0
				if s := r.status(); !s.Oldest.IsZero() {
					age = max(0, now.Sub(s.Oldest).Seconds())
				}
				r.count.oldest.Set(age)
			}
		}
	}
}

// countLate counts what nobody counts as it happens: as filtered what the table has turned down by itself since the last time, and what
// the rules know.
func (p *Pipeline) countLate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Load().count()
}

// count is called under the pipeline's lock.
func (now *routing) count() {
	for i, r := range now.routes {
		if n := now.table.Skipped(i) + r.table.Skipped(0); n > 0 {
			r.count.filtered.Add(float64(n))
		}
		r.show()
	}
}

// report says, without blocking, that Drain should look again.
func (p *Pipeline) report() {
	select {
	case p.progress <- struct{}{}:
	default:
	}
}
