package spec

import (
	"cmp"
	"log/slog"
	"math"
	"slices"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Prepare completes the settings of a route that appeared in the epoch born: with the defaults of
// the fields that are 0, a filter table of this route only, and its metrics. The result is
// immutable.
func (s Settings) Prepare(born int, m *metrics.Metrics, log *slog.Logger) *Settings {
	p := s.WithDefaults()
	p.born, p.count, p.log = born, newCounters(m, &p), log.With(slog.String("route", p.Name))
	p.inOrder = p.writesInOrder()
	p.ends = !p.HasCondition() && slices.ContainsFunc(p.Ops, queue.Ends)
	p.table = filters.NewTable([]filters.Entry{p.Entry()})
	return &p
}

// Table returns the filter table of this route only.
func (s *Settings) Table() *filters.Table { return s.table }

// Count returns the metrics of the route.
func (s *Settings) Count() *Counters { return &s.count }

// Log returns the log of the route.
func (s *Settings) Log() *slog.Logger { return s.log }

// Born returns the epoch in which the route appeared.
func (s *Settings) Born() int { return s.born }

// Entry returns the entry of the route in the filter table.
func (s *Settings) Entry() filters.Entry {
	if s.HasCondition() {
		return s.conditionEntry()
	}
	sources := s.Sources
	if s.Downstream {
		sources = nil
	}
	return filters.Entry{
		Sources: sources, Scope: s.Scope, Ops: s.Ops, Existing: s.Existing, Born: s.born,
		Filter: s.Filter, Ready: s.Ready, Allowance: s.allowance(), Keyed: s.keyed(),
	}
}

// conditionEntry returns the entry of a condition. The end of an object needs no evaluation: the
// conditions that track the object are notified, see Pipeline.Admit.
func (s *Settings) conditionEntry() filters.Entry {
	return filters.Entry{
		Sources: s.Sources, Scope: s.Scope, Ops: []event.Op{event.Added, event.Updated, event.Sync}, Existing: true, Born: math.MaxInt,
		Filter: s.When.Filter, Ready: s.Ready, Allowance: s.allowance(), Keyed: s.keyed(),
	}
}

// allowance is nil, and no nil pointer in an interface, for a route without an owner.
func (s *Settings) allowance() filters.Allowance {
	if s.Allowance == nil {
		return nil
	}
	return s.Allowance
}

func (s *Settings) keyed() bool { return s.Key != nil || s.Limit.Key != nil }

// HasCondition reports whether the route has a condition.
func (s *Settings) HasCondition() bool { return s.When.Filter != nil }

// Bound returns the limits of the pending deltas in memory.
func (s *Settings) Bound() queue.Bound { return queue.Bound{Entries: s.Capacity, Bytes: s.Bytes} }

// IsReady reports whether filter and key may be evaluated.
func (s *Settings) IsReady() bool { return s.Ready == nil || IsClosed(s.Ready) }

// IsWhole reports whether restored deltas may be processed of which the disk has only identities.
func (s *Settings) IsWhole() bool { return s.Cached.Whole == nil || IsClosed(s.Cached.Whole) }

// CaughtUp reports whether all changes up to the start of the router were admitted.
func (s *Settings) CaughtUp() bool { return s.When.CaughtUp == nil || IsClosed(s.When.CaughtUp) }

// IsClosed reports whether a channel is closed that never carries values.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// LooksUp reports whether filter or keys look up other objects, so that no delta is evaluated until
// these are in the cache.
func (s *Settings) LooksUp() bool { return s.Ready != nil }

// ResourceOf returns the resource that a source watches, or otherwise.
func (s *Settings) ResourceOf(source string, otherwise *event.Resource) *event.Resource {
	if s.When.Resource != nil {
		if known := s.When.Resource(source); known != nil {
			return known
		}
	}
	return otherwise
}

// FormerResource returns the resource of a source that is no longer configured, of which only the
// cluster is known.
func (s *Settings) FormerResource() *event.Resource {
	former := &event.Resource{}
	for _, source := range s.Sources {
		former.Cluster = cmp.Or(former.Cluster, s.ResourceOf(source, former).Cluster)
	}
	return former
}
