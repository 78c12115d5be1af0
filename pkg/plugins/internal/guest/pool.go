package guest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/circuit"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
)

// pool lends instances, each to one borrower at a time. It makes instances when they are needed,
// and keeps them until they break or wear out.
type pool struct {
	engine *engine.Engine
	log    *slog.Logger
	slots  chan struct{} // one element per borrower

	mu sync.Mutex
	// the last one is used next, so that few instances are in use
	idle   []*engine.Instance
	after  time.Time // the earliest time to replace a broken guest
	lent   int       // loans that were not returned
	closed bool
}

// errClosed is the error of a loan from a closed pool.
var errClosed = errors.New("the handler is closed")

func newPool(e *engine.Engine, instances int, log *slog.Logger) *pool {
	return &pool{engine: e, log: log, slots: make(chan struct{}, instances)}
}

// Replacing broken guests uses at most a fifth of a core, unless a start takes very long.
const (
	restFactor  = 4
	longestRest = time.Second
)

// restart replaces a broken guest after a pause in proportion to the duration of the last start.
func (p *pool) restart(ctx context.Context) (*engine.Instance, error) {
	p.mu.Lock()
	rest := time.Until(p.after)
	p.mu.Unlock()
	if rest > 0 {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	began := time.Now()
	in, err := p.engine.Start(ctx)
	ended := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = ended.Add(min(restFactor*ended.Sub(began), longestRest))
	return in, err
}

// borrow waits for a slot. The loan may have no instance yet.
func (p *pool) borrow(ctx context.Context) (*loan, error) {
	select {
	case p.slots <- struct{}{}: // nearly always; cheaper than a select with ctx
	default:
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.slots
		return nil, errClosed
	}
	p.lent++
	l := &loan{pool: p}
	if n := len(p.idle); n > 0 {
		l.instance, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	return l, nil
}

// close ends all instances and frees the engine: at once if none is lent (now is true), or else
// when the last one is returned. Memory and code of guests are unmapped then, and a running guest
// cannot be interrupted.
func (p *pool) close(ctx context.Context) (now bool, err error) {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	now = p.lent == 0
	for _, in := range idle {
		in.Close(ctx)
	}
	p.mu.Unlock()
	if now {
		err = p.engine.Close(ctx)
	}
	return now, err
}

// loan is a slot of the pool, with or without an instance. One goroutine uses it.
type loan struct {
	pool     *pool
	instance *engine.Instance
	broken   bool // the previous instance broke
	permit   circuit.Permit
	recorded int // bytes of the records of failed calls
}

// get returns the instance, or a new one if there is none.
func (l *loan) get(ctx context.Context) (*engine.Instance, error) {
	if l.instance == nil {
		start := l.pool.engine.Start
		if l.broken {
			start = l.pool.restart
		}
		in, err := start(ctx)
		if err != nil {
			l.broken = true
			return nil, err
		}
		l.instance = in
	}
	return l.instance, nil
}

// discard ends the instance because it broke or is worn out.
func (l *loan) discard(ctx context.Context, broken bool) {
	l.broken = broken
	if l.instance != nil {
		l.instance.Close(ctx)
		l.instance = nil
	}
}

// giveBack ends the loan. The last one of a closed pool frees the engine.
func (l *loan) giveBack(ctx context.Context) {
	p := l.pool
	p.mu.Lock()
	if l.instance != nil {
		if p.closed {
			l.discard(context.WithoutCancel(ctx), false)
		} else {
			p.idle = append(p.idle, l.instance)
		}
	}
	p.lent--
	free := p.closed && p.lent == 0
	p.mu.Unlock()
	if free {
		if err := p.engine.Close(context.WithoutCancel(ctx)); err != nil {
			p.log.Warn("closing a handler failed", "err", err)
		}
	}
	<-p.slots
}

// fuelRate is the recent fuel per delta. It follows an increase at once and a decrease slowly. It
// is safe for concurrent use.
type fuelRate struct{ rate atomic.Int64 }

// firstDeltas is the maximum number of deltas in the first call, when the fuel per delta is
// unknown.
const firstDeltas = 32

// newFuelRate returns the rate at which half of the fuel suffices for firstDeltas deltas.
func newFuelRate(fuel int64) *fuelRate {
	b := &fuelRate{}
	b.learn(fuel/2, firstDeltas)
	return b
}

func (b *fuelRate) learn(used int64, deltas int) {
	now, before := used/int64(deltas), b.rate.Load()
	b.rate.Store(max(now, before-before/8, 1)) // one of two simultaneous updates is lost
}

func (b *fuelRate) perDelta() int64 { return b.rate.Load() }
