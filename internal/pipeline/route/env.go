package route

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Env is shared by all routes. It is immutable.
type Env struct {
	Storage

	Log *slog.Logger
	// Complaints get what many routes or pipelines may have for one reason.
	Complaints *complaints.Log
	Metrics    *metrics.Metrics
	Store      Store // nil: the pipeline is not durable
	Letters    deliver.DeadLetterer
	Wheel      *timer.Wheel
	Census     *rules.Census

	// Given is called with the events that a route has handed to a downstream route, see
	// pipeline.Config.
	Given func(route string, sink spec.NamedSink, events []event.Event)
	// Permit is asked before each delivery, see pipeline.Config; nil: all are permitted.
	Permit func() bool
	// Settled is called with the numbers of deltas that are done, see pipeline.Config.
	Settled func(route string, numbers []uint64)
	// Part: the gauges of the routes are not set, see pipeline.Config.
	Part bool
	// Downstream returns the downstream route of a name; nil: there is none.
	Downstream func(name string) *Route

	Stopping <-chan struct{} // closed when no more deltas are taken
	Yield    Yield
	Chains   Chains
	Progress progress
	Workers  sync.WaitGroup // of all routes
}

// Store is the state file, which contains the deltas that do not fit into memory. Each cut adds the
// changes of [Route.Dirty] to it. It is safe for concurrent use.
type Store interface {
	// ReadRoute returns a part of the pending deltas of a route, by its id, in the order of their
	// ids, as of the last cut that was written.
	ReadRoute(id string, part checkpoint.Part) ([]checkpoint.Pending, error)
	// Soon requests a cut, because deltas on their way to the disk take memory. It does not block.
	Soon()
}

// progress lets one goroutine wait for progress of the routes.
type progress struct {
	// signalled when a route has nothing pending, has nothing to do now, or was paused
	changed chan struct{}
	awaited atomic.Bool
}

// Init prepares the progress for use.
func (p *progress) Init() { p.changed = make(chan struct{}, 1) }

// Wait waits until busy returns false. The error is that of ctx.
func (p *progress) Wait(ctx context.Context, busy func() bool) error {
	p.awaited.Store(true)
	defer p.awaited.Store(false)
	for busy() {
		select {
		case <-p.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// report wakes Wait, without blocking.
func (p *progress) report() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// reportIfAwaited is report for frequent callers.
func (p *progress) reportIfAwaited() {
	if p.awaited.Load() {
		p.report()
	}
}

// Yield ends all waits for room while the routes are exchanged.
type Yield struct {
	mu    sync.Mutex
	begun chan struct{} // closed while no source may wait for room
}

// Begin ends all waits for room until end is called: a full route exceeds its capacity a little.
func (y *Yield) Begin() (end func()) {
	close(y.wait())
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.begun = nil
	}
}

// wait returns a channel that is closed while no source may wait.
func (y *Yield) wait() chan struct{} {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.begun == nil {
		y.begun = make(chan struct{})
	}
	return y.begun
}
