package reflector

import (
	"context"
	"sync"
)

// Relisted counts the objects and deltas of a requested list.
type Relisted struct {
	Objects int // at the API server
	Deltas  int // differences from the cache
}

// Relist is one requested list.
type Relist struct {
	found Relisted
	done  chan struct{}
}

// Done returns a channel that is closed once the list was applied.
func (r *Relist) Done() <-chan struct{} { return r.done }

// Found returns the counts of the list. It is called when Done is closed.
func (r *Relist) Found() Relisted { return r.found }

// Relists are the requested lists of a watch. It is safe for concurrent use.
type Relists struct {
	mu        sync.Mutex
	asked     *Relist // not begun yet; nil: none
	begun     []*Relist
	interrupt context.CancelFunc // of client-go's Reflector
}

// Ask ends client-go's Reflector; the next one starts with a list. Calls before that start share
// one list.
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

// Asked reports whether the next list was requested.
func (r *Relists) Asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked != nil
}

// begin is called before client-go's Reflector runs; interrupt ends that Reflector. It reports
// whether a list was requested.
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

// Late has the namespaces whose objects a watch began to keep after its current list was requested:
// the list may lack some of their objects. It is safe for concurrent use; nil has none.
type Late struct {
	mu    sync.Mutex
	names map[string]bool
}

// Add adds a namespace.
func (l *Late) Add(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = make(map[string]bool)
	}
	l.names[namespace] = true
}

// Take returns the namespaces, and removes them.
func (l *Late) Take() (namespaces map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	namespaces, l.names = l.names, nil
	return namespaces
}

// begin is called before a list is requested.
func (l *Late) begin() {
	if l != nil {
		l.Take()
	}
}
