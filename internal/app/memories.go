package app

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/kv"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// memories is what the handlers remember, by their names: a handler that is opened anew at a reload goes on with it. It is safe for
// concurrent use.
type memories struct {
	db    *checkpoint.DB // nil: nothing outlives the process
	clock timer.Clock

	mu     sync.Mutex
	stores map[string]*kv.Store
}

// newMemories makes the memories that a state, if there is one, keeps.
func newMemories(s *state, clock timer.Clock) *memories {
	m := &memories{clock: clock, stores: make(map[string]*kv.Store)}
	if s != nil {
		m.db, s.memories = s.db, m
	}
	return m
}

// open returns what a handler remembers: now, or when the router last knew it.
func (m *memories) open(handler string) (*kv.Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if store := m.stores[handler]; store != nil {
		return store, nil
	}
	var saved []checkpoint.Value
	if m.db != nil {
		var err error
		if saved, err = m.db.LoadMemory(handler); err != nil {
			return nil, fmt.Errorf("state.dir: %w", err)
		}
	}
	entries := make([]kv.Entry, len(saved))
	for i, v := range saved {
		entries[i] = kv.Entry(v)
	}
	m.stores[handler] = kv.New(m.clock, m.db != nil, entries...)
	return m.stores[handler], nil
}

// dirty hands over what changed since the last call. It is called after what the routes owe was collected: a handler's writes are
// committed before its delta can be done, so that they are in the cut that has the delta done, or in one before.
func (m *memories) dirty() (cuts []checkpoint.MemoryCut) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, handler := range slices.Sorted(maps.Keys(m.stores)) {
		changes := m.stores[handler].Dirty()
		if changes.Empty() {
			continue
		}
		cut := checkpoint.MemoryCut{Handler: handler, Removed: changes.Removed}
		for _, e := range changes.Put {
			cut.Put = append(cut.Put, checkpoint.Value(e))
		}
		cuts = append(cuts, cut)
	}
	return cuts
}

// keep forgets what the other handlers remember. What is on disk of it stays there for a while, see checkpoint.DB.Forget.
func (m *memories) keep(handlers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.stores, func(handler string, _ *kv.Store) bool { return !slices.Contains(handlers, handler) })
}
