package pipeline

import (
	"context"
	"sync"

	"github.com/deltarouter/deltarouter/internal/pipeline/route"
)

// life is the start and the end of the workers of a pipeline.
type life struct {
	stopping chan struct{} // closed when no more deltas are taken
	stopOnce sync.Once

	// guards the following fields; it is taken before all locks except the cut locks
	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // of Start, for routes that come later; nil: it did not start
	cancel context.CancelFunc
	closed bool
}

// stop lets the pipeline take no more deltas.
func (l *life) stop() { l.stopOnce.Do(func() { close(l.stopping) }) }

// end cancels the workers. It returns false if there are none.
func (l *life) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil {
		return false
	}
	l.closed = true
	l.cancel()
	return true
}

// run starts the workers of a route. mu is held.
func (l *life) run(r *route.Route) {
	if l.ctx != nil && !l.closed {
		r.Workers().Start(l.ctx)
	}
}
