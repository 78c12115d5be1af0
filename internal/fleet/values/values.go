// Package values stores the kv of the handlers of workers in a bucket of NATS JetStream. Each
// worker has a mirror of it in memory, so a read costs no request.
//
// All commits of a handler replace one record, its head, and each is one atomic batch: the values,
// and the head with the condition that it is still the one that the mirror has seen. So a commit is
// applied completely or not at all, all workers see the commits in one order, and the limit of the
// size is exact.
package values

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Values has the kv of all handlers of a worker. It is safe for concurrent use.
type Values struct {
	conn  *fleet.Conn
	clock timer.Clock
	log   *slog.Logger

	ctx     context.Context // of the goroutines
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	stores map[string]*store // by handler
}

// New returns values without a handler. The end of ctx or Close ends them. Values expire by the
// clock.
func New(ctx context.Context, conn *fleet.Conn, clock timer.Clock, log *slog.Logger) *Values {
	ctx, end := context.WithCancel(ctx)
	return &Values{conn: conn, clock: clock, log: log, ctx: ctx, end: end, stores: make(map[string]*store)}
}

// Open returns the kv of a handler, a [plugins.SharedKV], and waits until the mirror is complete. A
// handler that is open already is returned at once.
func (v *Values) Open(ctx context.Context, handler string) (plugins.KV, error) {
	v.mu.Lock()
	s := v.stores[handler]
	if s == nil {
		s = newStore(v, handler)
		v.stores[handler] = s
		v.running.Go(func() { s.mirror.run(v.ctx) })
	}
	v.mu.Unlock()
	if s.mirror.complete() {
		return s, nil
	}
	if err := s.sync(ctx); err != nil {
		return nil, fmt.Errorf("the kv of handler %q cannot be read from NATS: %w", handler, err)
	}
	return s, nil
}

// Sync waits until all mirrors have the commits that any worker made before the call. A worker
// calls it after it has taken a partition, and before it handles the first delta of it.
func (v *Values) Sync(ctx context.Context) error {
	v.mu.Lock()
	stores := make([]*store, 0, len(v.stores))
	for _, s := range v.stores {
		stores = append(stores, s)
	}
	v.mu.Unlock()
	for _, s := range stores {
		if err := s.sync(ctx); err != nil {
			return fmt.Errorf("the kv of handler %q cannot be read from NATS: %w", s.handler, err)
		}
	}
	return nil
}

// Close ends the mirrors. Calls of a kv that are running, and later ones, fail.
func (v *Values) Close() {
	v.end()
	v.running.Wait()
}
