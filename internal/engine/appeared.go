package engine

import (
	"sync"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
)

// appeared has the watches and routes that are new since the last cut, for the next cut. It is safe
// for concurrent use; Begin and Introduce are not called during a Collect.
type appeared struct {
	mu      sync.Mutex
	watches map[string]bool // by the id of their Spec
	routes  []string        // by id
}

// Begin marks a watch as unknown, even if the state folder has it. If the process ends before its
// first list is complete, the routes of the next cut get the objects of that list. Otherwise only
// routes as new as the watch would get them, see transit.State.Epoch.
func (a *appeared) Begin(watch string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watches == nil {
		a.watches = make(map[string]bool)
	}
	a.watches[watch] = true
}

// takeBegun reports whether Begin was called for a watch since the last call.
func (a *appeared) takeBegun(watch string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := a.watches[watch]
	delete(a.watches, watch)
	return begun
}

// Introduce adds the routes to the next cut. It is called together with the hand-over of the
// existing objects to them, so a known route has all of these.
func (a *appeared) Introduce(routes []compile.Route) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes = a.routes[:0]
	for i := range routes {
		a.routes = append(a.routes, routes[i].ID)
	}
}

// Dirty implements participant: it returns an empty change of each route that was introduced since
// the last call.
func (a *appeared) Dirty() (routes []checkpoint.RouteCut) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range a.routes {
		routes = append(routes, checkpoint.RouteCut{Name: id})
	}
	a.routes = nil
	return routes
}
