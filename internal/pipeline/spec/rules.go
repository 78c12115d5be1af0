package spec

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// When makes a Route one with a condition: it takes no deltas as they are, but tells that its
// condition begins to hold for an object (event.Entered), and that it ends (event.Left), as far as
// its Ops want. Whether it holds is found out with each delta of the object; the end of an object
// ends it.
//
// Its state of each object changes in one step with the backlog of the route, and is part of what
// Pipeline.Dirty hands over. With a Store nothing is told before a cut has it: else a crash could
// forget that it was told, and so that its end has to be told. Until Route.Ready is closed it looks
// at nothing: then all objects have to be looked at, see Pipeline.Rescan.
type When struct {
	// says whether it holds, as far as the delta's New goes; nil: there is no condition
	Filter filters.Filter
	// Version differs between conditions that may hold for other objects: where it changes, all
	// objects have to be looked at.
	Version    string
	For, Every time.Duration // see rules.ConditionConfig
	// CaughtUp is closed when what has happened until the router started was admitted. Until then
	// time makes nothing of what was known before: it may hold no longer. nil: it was.
	CaughtUp <-chan struct{}
	// Object returns what is cached under a name; nil: nothing is. It is asked about what was
	// restored.
	Object func(source string, key event.Key) *event.Object
	// Resource returns what a source watches.
	Resource func(source string) *event.Resource
}

// Limit says how much of a key the route may have pending: Burst at once, and one more after each
// Every. Further deltas are suppressed: counted, and told by event.Delta.Suppressed to the next
// that is let through. What it knows is part of what Pipeline.Dirty hands over, of the same moment
// as what is pending.
//
// It is asked about a delta that the filter wants, before that is pending. Of a route that waits
// for more (Debounce, Grouped) it is asked when what waits is taken for the first time: about the
// net change of an object, or about a group as a whole, which counts as all its deltas. What the
// handler makes no event of or fails on, or what folds to nothing, does not count: another may come
// in its place, and how many were suppressed is told by that. That is forgotten of what is pending
// when the router ends or the route changes: it counts then. Dead letters that are delivered again
// are not subject to it, nor is what the filter or a key failed on.
type Limit struct {
	// Key names what is counted; nil: the object. An error that wraps expr.ErrAbsent means that the
	// object has no key of that kind, and is counted by itself; any other error rejects the delta.
	Key   func(ctx context.Context, d *event.Delta) (string, error)
	Every time.Duration // 0: no limit
	Burst int           // 0: 1
	// MaxKeys is how many keys are known at a time, see [rules.LimitConfig]; 0: 100,000.
	MaxKeys int
}

// On reports whether there is a limit.
func (l *Limit) On() bool { return l.Every > 0 }

func (l *Limit) config() rules.LimitConfig {
	return rules.LimitConfig{Every: l.Every, Burst: l.Burst, MaxKeys: l.MaxKeys}
}
