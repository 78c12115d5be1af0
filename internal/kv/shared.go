package kv

import "github.com/deltarouter/deltarouter/pkg/plugins"

// Change is a write of another process with its revision.
type Change struct {
	plugins.KVWrite

	Revision uint64
}

// Read returns a value with the revision of its [Change]. 0: there is none, or it has expired.
func (s *Store) Read(key string) (value []byte, revision uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	e := s.entries[key]
	if e == nil {
		return nil, 0, false
	}
	return e.Value, e.revision, true
}

// Apply applies changes atomically, in order and without a limit. With all they replace everything.
func (s *Store) Apply(changes []Change, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all {
		clear(s.entries)
		s.ends, s.size = nil, 0
	}
	for _, c := range changes {
		if c.Delete {
			s.remove(c.Key)
			continue
		}
		s.set(Entry{c.Key, c.Value, c.Expires})
		s.entries[c.Key].revision = c.Revision
	}
	s.expire()
}

// SizeAfter returns the bytes in use after some writes.
func (s *Store) SizeAfter(writes []plugins.KVWrite) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.sizeAfter(writes)
}
