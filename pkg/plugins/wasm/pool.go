package wasm

import (
	"context"
	"sync"
)

// pool lends instances, each to one borrower at a time. Instances are made when they are needed and kept until they must go.
type pool struct {
	engine *engine
	slots  chan struct{} // one element per borrower

	mu   sync.Mutex
	idle []*instance // the last is used next: the fewer instances there are in use, the less memory
}

func newPool(e *engine, workers int) *pool {
	return &pool{engine: e, slots: make(chan struct{}, max(workers, 1))}
}

// borrow waits for a slot. The loan may have no instance yet.
func (p *pool) borrow(ctx context.Context) (*loan, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
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
}

// get returns the instance, a new one if there is none.
func (l *loan) get(ctx context.Context) (*instance, error) {
	if l.instance == nil {
		in, err := l.pool.engine.start(ctx)
		if err != nil {
			return nil, err
		}
		l.instance = in
	}
	return l.instance, nil
}

// discard ends the instance.
func (l *loan) discard(ctx context.Context) {
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
