package reflector

import (
	"context"
	"sync"
)

// Relisted counts what a list that was asked for has found.
type Relisted struct {
	Objects int // that the API server has
	Deltas  int // what differed from the cache, as deltas
}

// Relist is one list that was asked for.
type Relist struct {
	found Relisted
	done  chan struct{}
}

// Done returns a channel that is closed once the list was applied.
func (r *Relist) Done() <-chan struct{} { return r.done }

// Found returns what the list has found. It is called when Done is closed.
func (r *Relist) Found() Relisted { return r.found }

// Relists are the lists of a watch that were asked for. It is safe for concurrent use.
type Relists struct {
	mu        sync.Mutex
	asked     *Relist // to be begun; nil: none is
	begun     []*Relist
	interrupt context.CancelFunc // of client-go's Reflector
}

// Ask ends client-go's Reflector; the next one begins with a list. Those who ask before it has
// begun share it.
func (r *Relists) Ask() *Relist {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked = &Relist{done: make(chan struct{})}
	}
	if r.interrupt != nil {
		r.interrupt()
	}
	return r.asked
}

// Asked reports whether the next list is waited for.
func (r *Relists) Asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked != nil
}

// begin is called before client-go's Reflector runs, which interrupt ends. It reports whether a
// list was asked for.
func (r *Relists) begin(interrupt context.CancelFunc) (list bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupt = interrupt
	if r.asked == nil {
		return false
	}
	r.begun, r.asked = append(r.begun, r.asked), nil
	return true
}

// End is called when a list was applied.
func (r *Relists) End(found Relisted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, relist := range r.begun {
		relist.found = found
		close(relist.done)
	}
	r.begun = nil
}
