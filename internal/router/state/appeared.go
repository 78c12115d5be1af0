package state

import (
	"sync"

	"github.com/deltarouter/deltarouter/internal/compile"
)

// appeared is which watches and routes are new since the last cut: the next one says that they are
// there. It is safe for concurrent use; Begin and Introduce are called while nothing is collected.
type appeared struct {
	mu      sync.Mutex
	watches map[string]bool // by the id of their Spec
	routes  []string        // by id
}

// Begin says that of a watch nothing is known, whatever the state folder has. If the process ends
// before its first list is complete, the routes that the next cut has get what that list brings.
// Else only those that are as new as the watch would get it, see transit.State.Epoch.
func (a *appeared) Begin(watch string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watches == nil {
		a.watches = make(map[string]bool)
	}
	a.watches[watch] = true
}

// takeBegun reports whether Begin was called for a watch since the last time.
func (a *appeared) takeBegun(watch string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := a.watches[watch]
	delete(a.watches, watch)
	return begun
}

// Introduce makes the next cut say that the routes are there. It is called together with what they
// are given of the objects that exist: so a route that is known has all of it.
func (a *appeared) Introduce(routes []compile.Route) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes = a.routes[:0]
	for i := range routes {
		a.routes = append(a.routes, routes[i].ID)
	}
}

// takeIntroduced returns the ids of the routes that Introduce was called with since the last time.
func (a *appeared) takeIntroduced() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.routes
	a.routes = nil
	return ids
}
