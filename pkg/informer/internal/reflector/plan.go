package reflector

import (
	"context"
	"sync"
	"sync/atomic"
)

// Plan decides how the next client-go Reflector starts: it resumes from the state, or it lists. It
// is safe for concurrent use.
type Plan struct {
	// resumable: the first list is not needed, because the store has the saved objects.
	resumable atomic.Bool
	// resumed: the Reflector is about to replace the store by an empty list that stands for it.
	resumed atomic.Bool
	// latest: the next list is the truth, even if it is older than the store.
	latest atomic.Bool
	// unnamed: since the last list, an object arrived whose name could not be read.
	unnamed atomic.Bool
}

// Restore makes the first Reflector resume, if the restored state allows it.
func (p *Plan) Restore(resumable bool) {
	p.latest.Store(true)
	p.resumable.Store(resumable)
}

// MayResume lets the next Reflector resume, if the state allows it and no list is required.
func (p *Plan) MayResume(resumable bool) { p.resumable.Store(resumable && !p.latest.Load()) }

// MustList makes the next Reflector list.
func (p *Plan) MustList() { p.resumable.Store(false) }

// MustListLatest makes the next Reflector list, and take the list as the truth.
func (p *Plan) MustListLatest() {
	p.latest.Store(true)
	p.resumable.Store(false)
}

// Resumable reports whether the next Reflector resumes.
func (p *Plan) Resumable() bool { return p.resumable.Load() }

// Listing records that the Reflector is about to hand over a list of its own.
func (p *Plan) Listing() { p.resumed.Store(false) }

// Resumed records that the Reflector is about to hand over an empty list, which stands for the
// store.
func (p *Plan) Resumed() {
	p.resumed.Store(true)
	p.resumable.Store(false)
}

// TakeResumed reports whether the current list stands for the store.
func (p *Plan) TakeResumed() bool { return p.resumed.Swap(false) }

// SetLatest says that the next list is the truth.
func (p *Plan) SetLatest() { p.latest.Store(true) }

// Latest reports whether the next list is the truth, even if it is older than the store.
func (p *Plan) Latest() bool { return p.latest.Load() }

// Unnamed reports whether an object whose name could not be read arrived since the last list.
func (p *Plan) Unnamed() bool { return p.unnamed.Load() }

// SetUnnamed records that an object arrived whose name could not be read.
func (p *Plan) SetUnnamed() { p.unnamed.Store(true) }

// Done is called when the watch has a state to resume from: a list was applied, or it was resumed.
func (p *Plan) Done() { p.latest.Store(false) }

// Listed is called when a list was applied.
func (p *Plan) Listed() {
	p.unnamed.Store(false)
	p.Done()
}

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
