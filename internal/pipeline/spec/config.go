package spec

import (
	"cmp"
	"log/slog"
	"math"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Config is the specification of a route with its filter table and its counters. It is immutable.
type Config struct {
	Settings

	Table *filters.Table // of this route only
	Count Counters
	Log   *slog.Logger

	born int // the pipeline's epoch when the route appeared, see filters.Entry
}

// NewConfig returns the configuration of a route that appeared in the epoch born.
func NewConfig(r *Settings, born int, m *metrics.Metrics, log *slog.Logger) *Config {
	c := &Config{Settings: *r, born: born, Count: newCounters(m, r), Log: log.With(slog.String("route", r.Name))}
	c.Table = filters.NewTable([]filters.Entry{c.Entry()})
	return c
}

// Born returns the epoch in which the route appeared.
func (c *Config) Born() int { return c.born }

// Entry returns the entry of the route in the filter table.
func (c *Config) Entry() filters.Entry {
	if c.HasCondition() {
		return c.conditionEntry()
	}
	sources := c.Sources
	if c.Downstream {
		sources = nil
	}
	return filters.Entry{
		Sources: sources, Scope: c.Scope, Ops: c.Ops, Existing: c.Existing, Born: c.born,
		Filter: c.Filter, Ready: c.Ready, Allowance: c.Allowance, Keyed: c.keyed(),
	}
}

// conditionEntry returns the entry of a condition. The end of an object needs no evaluation: the
// conditions that track the object are notified, see Pipeline.Admit.
func (c *Config) conditionEntry() filters.Entry {
	return filters.Entry{
		Sources: c.Sources, Scope: c.Scope, Ops: []event.Op{event.Added, event.Updated, event.Sync}, Existing: true, Born: math.MaxInt,
		Filter: c.When.Filter, Ready: c.Ready, Allowance: c.Allowance, Keyed: c.keyed(),
	}
}

func (c *Config) keyed() bool { return c.Key != nil || c.Limit.Key != nil }

// HasCondition reports whether the route has a condition.
func (c *Config) HasCondition() bool { return c.When.Filter != nil }

// Bound returns the limits of the pending deltas in memory.
func (c *Config) Bound() queue.Bound { return queue.Bound{Entries: c.Capacity, Bytes: c.Bytes} }

// IsReady reports whether filter and key may be evaluated.
func (c *Config) IsReady() bool { return c.Ready == nil || IsClosed(c.Ready) }

// IsWhole reports whether restored deltas may be processed of which the disk has only identities.
func (c *Config) IsWhole() bool { return c.Cached.Whole == nil || IsClosed(c.Cached.Whole) }

// CaughtUp reports whether all changes up to the start of the router were admitted.
func (c *Config) CaughtUp() bool { return c.When.CaughtUp == nil || IsClosed(c.When.CaughtUp) }

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
func (c *Config) LooksUp() bool { return c.Ready != nil }

// ResourceOf returns the resource that a source watches, or otherwise.
func (c *Config) ResourceOf(source string, otherwise *event.Resource) *event.Resource {
	if c.When.Resource != nil {
		if known := c.When.Resource(source); known != nil {
			return known
		}
	}
	return otherwise
}

// FormerResource returns the resource of a source that is no longer configured, of which only the
// cluster is known.
func (c *Config) FormerResource() *event.Resource {
	former := &event.Resource{}
	for _, source := range c.Sources {
		former.Cluster = cmp.Or(former.Cluster, c.ResourceOf(source, former).Cluster)
	}
	return former
}
