package route

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
)

// shares bound the backlogs of all routes of an owner together, see [checkpoint.Owner]. They are
// safe for concurrent use. The zero value has no bounds.
type shares struct {
	Memory, Disk int64 // bytes of all routes of an owner; 0: no limit
	Keys         int64 // of the limits of all routes of an owner; 0: no limit
	Objects      int64 // that the conditions and delete holds of all routes of an owner track; 0: no limit

	mu     sync.Mutex
	owners map[string]*share
}

// share has the used amounts of an owner.
type share struct {
	memory, disk atomic.Int64
	keys         *rules.Share
	objects      *rules.Share
	held         *rules.Share // bytes of held deletes, beside memory
}

// of returns the share of the owner of the route with an id; nil: it has none.
func (s *shares) of(id string) *share {
	owner := checkpoint.Owner(id)
	if owner == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil {
		s.owners = make(map[string]*share)
	}
	if s.owners[owner] == nil {
		s.owners[owner] = &share{keys: rules.NewShare(s.Keys), objects: rules.NewShare(s.Objects), held: rules.NewShare(s.Memory)}
	}
	return s.owners[owner]
}

// rules sets the shares of the rules of the route with an id.
func (s *shares) rules(id string, env *condition.Env) {
	if of := s.of(id); of != nil {
		env.Keys, env.Objects, env.HeldBytes = of.keys, of.objects, of.held
	}
}

// account is the part of a route in the share of its owner. The lock of the route guards it.
type account struct {
	limits *shares
	share  *share // nil: the route has no owner
	memory int64  // bytes of the route in the share
}

// move changes the share.
func (a *account) move(to *share) {
	if a.share != to {
		a.count(0)
		a.share = to
	}
}

// count sets the bytes of the route in memory.
func (a *account) count(memory int64) {
	if a.share != nil {
		a.share.memory.Add(memory - a.memory)
		a.memory = memory
	}
}

// within returns how many bytes the route may have in memory: those of its own bound that the other
// routes of its owner leave, and so many that it may have one delta.
func (a *account) within(bytes int64) int64 {
	if a.share == nil || a.limits.Memory == 0 {
		return bytes
	}
	return max(1, min(bytes, a.memory+a.limits.Memory-a.share.memory.Load()))
}

// excess returns by how many bytes the backlogs of the owner on disk exceed their bound; negative:
// they may have so many more.
func (a *account) excess() int64 {
	if a.share == nil || a.limits.Disk == 0 {
		return math.MinInt64 / 2
	}
	return a.share.disk.Load() - a.limits.Disk
}

// saved sets the bytes of the backlogs of the owner on disk.
func (a *account) saved(owned int64) {
	if a.share != nil {
		a.share.disk.Store(owned)
	}
}
