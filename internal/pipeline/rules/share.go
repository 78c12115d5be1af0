package rules

import "sync/atomic"

// Share bounds a number of the rules of several routes together: of keys, objects or bytes. It is
// safe for concurrent use; routes that add at the same moment may exceed the bound by their
// additions. A nil Share has no bound.
type Share struct {
	bound int64 // 0: none
	used  atomic.Int64
}

// NewShare returns an unused share. bound 0: it has none.
func NewShare(bound int64) *Share { return &Share{bound: bound} }

// Bound returns the bound; 0: there is none.
func (s *Share) Bound() int64 {
	if s == nil {
		return 0
	}
	return s.bound
}

// Full reports whether all of the share is used.
func (s *Share) Full() bool { return s != nil && s.bound > 0 && s.used.Load() >= s.bound }

// add adds n, which may be negative, to the used number.
func (s *Share) add(n int64) {
	if s != nil {
		s.used.Add(n)
	}
}
