package route

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/backlog"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Env is what all routes share. It never changes.
type Env struct {
	backlog.Env

	Log     *slog.Logger
	Metrics *metrics.Metrics
	Store   Store // nil: nothing outlives the process
	Letters deliver.DeadLetterer
	Wheel   *timer.Wheel
	Census  *rules.Census

	// Given is called with the events that a route has given to another, by that target, see
	// pipeline.Config.
	Given func(route string, sink spec.NamedSink, events []event.Event)
	// Downstream returns the downstream route of a name; nil: there is none.
	Downstream func(name string) *Route

	Stopping <-chan struct{} // closed when no more deltas are taken
	Yield    Yield
	Chains   Chains
	Progress Progress
	Workers  sync.WaitGroup // of all routes
}

// Store is where the end of a queue lies that does not fit into memory: the state file, into which
// the cuts go that [Route.Dirty] hands over. It is safe for concurrent use.
type Store interface {
	// ReadRoute returns a part of the pending deltas of the route of an id, in the order of their
	// ids, as of the last cut that was written.
	ReadRoute(id string, part checkpoint.Part) ([]checkpoint.Pending, error)
	// Soon asks for a cut, because deltas on their way to the disk take memory. It does not block.
	Soon()
}

// Progress lets one goroutine wait until the routes have got somewhere.
type Progress struct {
	// a route has nothing pending any more, nothing to do at this moment, or was paused
	changed chan struct{}
	awaited atomic.Bool
}

// Init makes the progress ready for use.
func (p *Progress) Init() { p.changed = make(chan struct{}, 1) }

// Wait waits while the routes are busy. The error is that of ctx.
func (p *Progress) Wait(ctx context.Context, busy func() bool) error {
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

// report lets Wait look again, without blocking.
func (p *Progress) report() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// reportIfAwaited is report, where that comes often.
func (p *Progress) reportIfAwaited() {
	if p.awaited.Load() {
		p.report()
	}
}

// Yield lets every source that waits for room go on at once, while the routes are exchanged.
type Yield struct {
	mu    sync.Mutex
	begun chan struct{} // closed while no source may wait for room
}

// Begin ends all waits for room, and those that begin until end is called: a route that is full
// gets a little more than it has room for.
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
