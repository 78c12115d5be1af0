package wasm

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/circuit"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/engine"
)

// pool lends instances, each to one borrower at a time. Instances are made when they are needed and
// kept until they must go.
type pool struct {
	engine *engine.Engine
	log    *slog.Logger
	slots  chan struct{} // one element per borrower

	mu sync.Mutex
	// the last is used next: the fewer instances there are in use, the less memory
	idle   []*engine.Instance
	after  time.Time // when a guest may be started in the place of a broken one
	lent   int       // loans that were not given back
	closed bool
}

// errClosed is the error of a loan from a closed pool.
var errClosed = errors.New("the handler is closed")

func newPool(e *engine.Engine, instances int, log *slog.Logger) *pool {
	return &pool{engine: e, log: log, slots: make(chan struct{}, instances)}
}

// Starting guests in the place of broken ones takes no more than a fifth of a core, unless a start
// takes very long.
const (
	restFactor  = 4
	longestRest = time.Second
)

// restart starts a guest in the place of a broken one, after the last start's time has been slept
// off.
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
	case p.slots <- struct{}{}: // nearly always, and cheaper than to look at ctx as well
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

// close ends all instances and then frees the engine: at once if none is lent, which it reports,
// and else when the last one is given back. Guests run in memory and code that are unmapped then,
// and a running guest cannot be interrupted.
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

// loan is a slot of the pool, with an instance or without. It belongs to one goroutine.
type loan struct {
	pool     *pool
	instance *engine.Instance
	broken   bool // the one before broke
	permit   circuit.Permit
}

// get returns the instance, a new one if there is none.
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

// discard ends the instance, because it broke or because it is worn out.
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

// burnRate is how much fuel a delta took of late. It follows a rise at once and a fall slowly. It
// is safe for concurrent use.
type burnRate struct{ rate atomic.Int64 }

// firstDeltas is how many deltas the first call gets at most, before anything is known.
const firstDeltas = 32

// newBurnRate returns the rate at which a call with half of the fuel has firstDeltas deltas.
func newBurnRate(fuel int64) *burnRate {
	b := &burnRate{}
	b.learn(fuel/2, firstDeltas)
	return b
}

func (b *burnRate) learn(used int64, deltas int) {
	now, before := used/int64(deltas), b.rate.Load()
	b.rate.Store(max(now, before-before/8, 1)) // of two that learn at once one is forgotten
}

func (b *burnRate) perDelta() int64 { return b.rate.Load() }
