package app

import (
	"sync"

	"github.com/deltarouter/deltarouter/pkg/kv"
)

// memories is what the handlers remember, by their names: a handler that is opened anew at a reload goes on with it.
type memories struct {
	state *state // nil: nothing outlives the process

	mu     sync.Mutex
	stores map[string]*kv.Store
}

func newMemories(s *state) *memories { return &memories{state: s, stores: make(map[string]*kv.Store)} }

// open returns what a handler remembers.
func (m *memories) open(handler string) (*kv.Store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stores[handler] == nil {
		m.stores[handler] = kv.New(false)
	}
	return m.stores[handler], nil
}
