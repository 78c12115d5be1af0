package apply

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// deletesWait is the time that the deletes of the last objects in a deleted namespace have to
	// arrive, before they are inferred.
	deletesWait = 10 * time.Second
	// deletesLook is the interval at which their arrival is checked.
	deletesLook = 20 * time.Millisecond
)

// Namespaces is the set of the namespaces that a selector selects. The watch of the namespaces
// (Config.Selects) changes the set, and the watches that keep only the objects in these namespaces
// (Config.Within) follow each change before it is committed. So after a crash a change that was
// followed only in part is repeated.
//
// It is safe for concurrent use, except for methods that say otherwise.
type Namespaces struct {
	mu    sync.RWMutex
	names map[string]bool

	ready     chan struct{}
	once      sync.Once
	followers []*within
}

// NewNamespaces returns an empty set.
func NewNamespaces() *Namespaces {
	return &Namespaces{names: make(map[string]bool), ready: make(chan struct{})}
}

// Has reports whether a namespace is in the set.
func (s *Namespaces) Has(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.names[namespace]
}

// Len returns the number of the namespaces.
func (s *Namespaces) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.names)
}

// Add adds a namespace that the followers know already.
func (s *Namespaces) Add(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[namespace] = true
}

func (s *Namespaces) remove(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, namespace)
}

// Ready returns a channel that is closed when the set is complete for the first time.
func (s *Namespaces) Ready() <-chan struct{} { return s.ready }

func (s *Namespaces) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// Lead replaces the followers. The watch of the namespaces is held, or does not run yet.
func (s *Namespaces) Lead(followers []*Applier) {
	s.followers = nil
	for _, a := range followers {
		s.followers = append(s.followers, a.within)
	}
}

// Tidy is called once when a follower starts: it may have objects in a namespace that has left
// while the process did not run.
func (s *Namespaces) Tidy(ctx context.Context, follower *Applier) {
	follower.within.leaveOthers(ctx, "")
}

// follow applies a change of the watch of the namespaces, which holds its turn. It returns false if
// ctx is done.
func (s *Namespaces) follow(ctx context.Context, c change) bool {
	if c.op == event.Added {
		return s.include(ctx, c.now.Key().Name)
	}
	if c.now == nil {
		return s.exclude(ctx, c.old.Key().Name, c.op == event.Deleted)
	}
	return true
}

// include adds a namespace, and then the objects in it. The order matters: from the first step on
// the followers keep the events of these objects, so the list of the second one misses nothing.
func (s *Namespaces) include(ctx context.Context, namespace string) bool {
	s.Add(namespace)
	for _, w := range s.followers {
		if !w.include(ctx, namespace) {
			return false
		}
	}
	return true
}

// exclude removes a namespace and the objects in it. Of a deleted namespace the objects were
// deleted first, but their events come on other connections: exclude waits a moment for them.
func (s *Namespaces) exclude(ctx context.Context, namespace string, deleted bool) bool {
	if deleted && s.isReady() {
		until := time.Now().Add(deletesWait)
		for _, w := range s.followers {
			for w.expects(namespace) && time.Now().Before(until) {
				if timer.Sleep(ctx, deletesLook) != nil {
					return false
				}
			}
		}
	}
	s.remove(namespace)
	for _, w := range s.followers {
		if !w.leaveOthers(ctx, namespace) {
			return false
		}
	}
	return true
}

// settled is called at the end of each list of the namespaces, and makes the set equal to the ones
// in the store: it differs after a change that ended half-way. It returns false if ctx is done.
func (s *Namespaces) settled(ctx context.Context, a *Applier) bool {
	if s == nil {
		return true
	}
	names := make(map[string]bool)
	for o := range a.cfg.State.All() {
		names[o.Key().Name] = true
	}
	if !a.turn.take(ctx) {
		return false
	}
	defer a.turn.give()
	if !s.settle(ctx, names) {
		return false
	}
	// First, because the sources of the followers are synced only if this watch is.
	a.cfg.Health.SetSynced(true)
	s.once.Do(func() { close(s.ready) })
	return true
}

func (s *Namespaces) settle(ctx context.Context, listed map[string]bool) bool {
	s.mu.RLock()
	former := slices.Collect(maps.Keys(s.names))
	s.mu.RUnlock()
	for _, namespace := range former {
		if !listed[namespace] && !s.exclude(ctx, namespace, false) {
			return false
		}
	}
	return true
}
