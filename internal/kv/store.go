// Package kv stores the state that handlers keep between calls: keys and values in memory, with
// expiry and a bound on their size. A [Store] tracks its changes since the last cut, so that only
// these are written to the checkpoint. An [Overlay] is the view of one call: its writes are applied
// all together, or not at all.
package kv

import (
	"container/heap"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Entry is a value under its key.
type Entry struct {
	Key     string
	Value   []byte
	Expires time.Time // zero: never
}

// Changes are the changes of a store between two calls of [Store.Dirty].
type Changes struct {
	Put     []Entry
	Removed []string
}

// Empty reports whether there are no changes.
func (c Changes) Empty() bool { return len(c.Put) == 0 && len(c.Removed) == 0 }

// Store is the key-value store of one handler. It is safe for concurrent use. Expired values do not
// exist any more.
type Store struct {
	clock timer.Clock

	mu      sync.Mutex
	entries map[string]*entry
	ends    ends                // the entries that expire, the next one first
	size    int64               // see plugins.KVSize
	dirty   map[string]struct{} // keys that were set or removed; nil: the store is not durable
	secret  bool                // see Withhold
}

var _ plugins.KV = (*Store)(nil)

type entry struct {
	Entry

	at       int    // in Store.ends; -1: it does not expire
	revision uint64 // see Store.Apply
}

// New returns a store with these entries. A durable store collects its changes until [Store.Dirty]
// returns them. Values expire by the clock.
func New(clock timer.Clock, durable bool, entries ...Entry) *Store {
	s := &Store{clock: clock, entries: make(map[string]*entry, len(entries))}
	if durable {
		s.dirty = make(map[string]struct{})
	}
	for _, e := range entries {
		s.set(e)
	}
	return s
}

// Get implements plugins.KV.
func (s *Store) Get(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	e := s.entries[key]
	if e == nil {
		return nil, false
	}
	return e.Value, true
}

// Size implements plugins.KV.
func (s *Store) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.size
}

// Commit implements plugins.KV.
func (s *Store) Commit(writes []plugins.KVWrite, limit int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if after := s.sizeAfter(writes); after > limit && after > s.size {
		return plugins.ErrKVFull
	}
	for _, w := range writes {
		if w.Delete {
			s.remove(w.Key)
		} else {
			s.set(Entry{w.Key, w.Value, w.Expires})
		}
		s.touch(w.Key)
	}
	return nil
}

func (s *Store) sizeAfter(writes []plugins.KVWrite) int64 {
	after := s.size
	last := make(map[string]int64, len(writes)) // the bytes of each key
	for _, w := range writes {
		before, known := last[w.Key]
		if e := s.entries[w.Key]; !known && e != nil {
			before = plugins.KVSize(e.Key, e.Value)
		}
		now := int64(0)
		if !w.Delete {
			now = plugins.KVSize(w.Key, w.Value)
		}
		last[w.Key] = now
		after += now - before
	}
	return after
}

// Dirty returns and forgets the changes since the last call. Only a durable store has changes.
func (s *Store) Dirty() (c Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for key := range s.dirty {
		if e := s.entries[key]; e != nil && !s.secret {
			c.Put = append(c.Put, e.Entry)
		} else {
			c.Removed = append(c.Removed, key)
		}
	}
	clear(s.dirty)
	return c
}

// Withhold removes the values from the disk, while they stay in memory: the next [Store.Dirty]
// returns the removal of every key, and later ones return no changes.
func (s *Store) Withhold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret {
		return
	}
	for key := range s.entries {
		s.touch(key)
	}
	s.secret = true
}

// Withheld reports whether the values may not reach the disk.
func (s *Store) Withheld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret
}

func (s *Store) touch(key string) {
	if s.dirty != nil && !s.secret {
		s.dirty[key] = struct{}{}
	}
}

func (s *Store) set(e Entry) {
	s.remove(e.Key)
	kept := &entry{Entry: e, at: -1}
	s.entries[e.Key] = kept
	s.size += plugins.KVSize(e.Key, e.Value)
	if !e.Expires.IsZero() {
		heap.Push(&s.ends, kept)
	}
}

func (s *Store) remove(key string) {
	e := s.entries[key]
	if e == nil {
		return
	}
	delete(s.entries, key)
	s.size -= plugins.KVSize(e.Key, e.Value)
	if e.at >= 0 {
		heap.Remove(&s.ends, e.at)
	}
}

// expire removes expired values.
func (s *Store) expire() {
	if len(s.ends) == 0 {
		return
	}
	for now := s.clock.Now(); len(s.ends) > 0 && !now.Before(s.ends[0].Expires); {
		key := s.ends[0].Key
		s.remove(key)
		s.touch(key)
	}
}

// ends is a heap.
type ends []*entry

func (h ends) Len() int           { return len(h) }
func (h ends) Less(i, k int) bool { return h[i].Expires.Before(h[k].Expires) }
func (h ends) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].at, h[k].at = i, k
}

// Push implements heap.Interface.
func (h *ends) Push(x any) {
	e, _ := x.(*entry)
	e.at = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *ends) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.at = -1
	return e
}
