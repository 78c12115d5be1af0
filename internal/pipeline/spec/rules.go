package spec

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// When gives a Route a condition. The route then delivers no deltas as they are, but reports that
// the condition begins to hold for an object (event.Entered) and that it ends (event.Left), if its
// Ops include these. The condition is evaluated with each delta of the object; the end of the
// object ends it.
//
// Its state of each object changes under the same lock as the backlog of the route, and is part of
// the records of Pipeline.Dirty. With a Store, a report is delivered only after a cut contains it;
// otherwise a crash could lose the state, and the end would never be reported. It evaluates nothing
// until Route.Ready is closed; then all objects are evaluated, see Pipeline.Rescan.
type When struct {
	// reports whether it holds, using the delta's New; nil: there is no condition
	Filter filters.Filter
	// Version changes when the condition may hold for other objects: then all objects are evaluated
	// again.
	Version    string
	For, Every time.Duration // see rules.ConditionConfig
	// CaughtUp is closed when all changes up to the start of the router were admitted. Until then
	// no timer of a restored condition or delete hold fires, because the object may have changed.
	// nil: it is closed.
	CaughtUp <-chan struct{}
	// Object returns the cached object of a name; nil: there is none. It is called for restored
	// conditions.
	Object func(source string, key event.Key) *event.Object
	// Resource returns the resource that a source watches.
	Resource func(source string) *event.Resource
}

// Limit bounds the rate at which deltas of a key become pending: Burst at once, and one more after
// each Every. Further deltas are suppressed: the next delta that passes has their count in
// event.Delta.Suppressed. The state is part of the records of Pipeline.Dirty, consistent with the
// pending deltas.
//
//   - The limit applies to a delta that passed the filter, before it becomes pending.
//   - In a route with a window (Debounce, Grouped), the limit applies when the pending deltas are
//     taken for the first time: to the net change of an object, or to a group as a whole, which
//     counts as all its deltas.
//   - A delta does not count if the handler makes no event of it or fails on it, or if it is
//     coalesced into nothing. Another delta may pass in its place, and reports the suppressed
//     count. After a restart or a change of the route, such a delta counts.
//   - The limit does not apply to redelivered dead letters, nor to deltas on which the filter or a
//     key failed.
type Limit struct {
	// Key returns the key of the limit; nil: the object. An error that wraps cel.ErrAbsent means
	// that the object has no such key, and is counted by itself; any other error rejects the delta.
	Key   func(ctx context.Context, d *event.Delta) (string, error)
	Every time.Duration // 0: no limit
	Burst int           // 0: 1
	// MaxKeys is the maximum number of tracked keys, see [rules.LimitConfig]; 0: 100,000.
	MaxKeys int
}

// On reports whether there is a limit.
func (l *Limit) On() bool { return l.Every > 0 }

// Rate returns the limit for its keys.
func (l *Limit) Rate() rules.LimitConfig {
	return rules.LimitConfig{Every: l.Every, Burst: l.Burst, MaxKeys: l.MaxKeys}
}
