package reflector

import "sync"

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
