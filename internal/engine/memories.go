package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Memories has the kv of the handlers and sinks, by their names, see MemoryOfSink: a handler that a
// reload opens again keeps it. It is safe for concurrent use.
type Memories struct {
	db    *checkpoint.DB // nil: no value survives the process
	clock timer.Clock

	mu     sync.Mutex
	stores map[string]*kv.Store
	shared func(handler string) (plugins.KV, error) // nil: stores has all, see Share
}

// Share makes [Memories.OpenHandler] return the kv of other processes: on a worker of a fleet. It
// is called before the first handler is opened.
func (m *Memories) Share(open func(handler string) (plugins.KV, error)) { m.shared = open }

// OpenHandler returns the kv of a handler.
func (m *Memories) OpenHandler(handler string) (plugins.KV, error) {
	if m.shared != nil {
		return m.shared(handler)
	}
	return m.Open(handler)
}

// NewMemories makes the memories that a state, if there is one, keeps.
func NewMemories(s *State, clock timer.Clock) *Memories {
	m := &Memories{clock: clock, stores: make(map[string]*kv.Store)}
	if s != nil {
		m.db, s.memories = s.db, m
	}
	return m
}

// Open returns the kv of a handler or sink: the present one, or the saved one.
func (m *Memories) Open(handler string) (*kv.Store, error) {
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

// Withhold keeps the kv of some handlers off the disk, until the process ends.
func (m *Memories) Withhold(handlers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, handler := range handlers {
		if store := m.stores[handler]; store != nil {
			store.Withhold()
		}
	}
}

// dirty returns the changes since the last call. It is called after the backlogs of the routes were
// collected: a handler's writes are committed before its delta can be done, so they are in the cut
// in which the delta is done, or in an earlier one.
func (m *Memories) dirty() (cuts []checkpoint.MemoryCut) {
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

// Keep removes the kv of all other handlers. Its saved part stays on disk for a while, see
// checkpoint.DB.Forget.
func (m *Memories) Keep(handlers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.stores, func(handler string, _ *kv.Store) bool { return !slices.Contains(handlers, handler) })
}

// memoryOfSink returns the name of the kv of a sink. No handler has such a name.
func memoryOfSink(name string) string { return "sink:" + name }

// Remembering returns the names of all kv stores of a configuration.
func Remembering(cfg *config.Config) []string {
	names := slices.Collect(maps.Keys(cfg.Handlers))
	for _, f := range cfg.Fragments { // also of those whose routes are disabled
		for _, handler := range f.Scope.Handlers {
			names = append(names, f.Scope.Qualified(handler))
		}
	}
	for name := range cfg.Sinks {
		names = append(names, memoryOfSink(name))
	}
	if cfg.CustomResources != (config.CustomResources{}) {
		names = append(names, memoryOfObjects)
	}
	if cfg.Fleet != nil {
		names = append(names, memoryOfFolder)
	}
	return names
}
