package wasm

import (
	"context"
	"sync"
	"time"
)

// pool lends instances, each to one borrower at a time. Instances are made when they are needed and kept until they must go.
type pool struct {
	engine *engine
	slots  chan struct{} // one element per borrower

	mu    sync.Mutex
	idle  []*instance // the last is used next: the fewer instances there are in use, the less memory
	after time.Time   // when a guest may be started in the place of a broken one
}

func newPool(e *engine, instances int) *pool {
	return &pool{engine: e, slots: make(chan struct{}, instances)}
}

// Starting guests in the place of broken ones takes no more than a fifth of a core, unless a start takes very long.
const (
	restFactor  = 4
	longestRest = time.Second
)

// restart starts a guest in the place of a broken one, after the last start's time has been slept off.
func (p *pool) restart(ctx context.Context) (*instance, error) {
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
	in, err := p.engine.start(ctx)
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
	l := &loan{pool: p}
	if n := len(p.idle); n > 0 {
		l.instance, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	return l, nil
}

// close ends all instances. None may be lent.
func (p *pool) close(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.idle {
		in.close(ctx)
	}
	p.idle = nil
}

// loan is a slot of the pool, with an instance or without. It belongs to one goroutine.
type loan struct {
	pool     *pool
	instance *instance
	broken   bool // the one before broke
}

// get returns the instance, a new one if there is none.
func (l *loan) get(ctx context.Context) (*instance, error) {
	if l.instance == nil {
		start := l.pool.engine.start
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
		l.instance.close(ctx)
		l.instance = nil
	}
}

// giveBack ends the loan.
func (l *loan) giveBack() {
	p := l.pool
	if l.instance != nil {
		p.mu.Lock()
		p.idle = append(p.idle, l.instance)
		p.mu.Unlock()
	}
	<-p.slots
}
