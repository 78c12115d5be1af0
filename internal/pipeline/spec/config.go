package spec

import (
	"log/slog"
	"math"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/condition"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Config is the specification of a route with its filter table and its counters. It is immutable.
type Config struct {
	Route

	Table *filters.Table // of this route only
	Count Counters
	Log   *slog.Logger

	born int // the pipeline's epoch when the route appeared, see filters.Entry
}

// NewConfig returns the configuration of a route that appeared in the epoch born.
func NewConfig(r *Route, born int, m *metrics.Metrics, log *slog.Logger) *Config {
	c := &Config{Route: *r, born: born, Count: newCounters(m, r), Log: log.With(slog.String("route", r.Name))}
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
		Sources: sources, Scope: c.Scope, Ops: c.Ops, Initial: c.Existing, Born: c.born,
		Filter: c.Filter, Ready: c.Ready, Allowance: c.Allowance, Keyed: c.keyed(),
	}
}

// conditionEntry returns the entry of a condition. The end of an object needs no evaluation: the
// conditions that track the object are notified, see Pipeline.Admit.
func (c *Config) conditionEntry() filters.Entry {
	return filters.Entry{
		Sources: c.Sources, Scope: c.Scope, Ops: []event.Op{event.Added, event.Updated, event.Sync}, Initial: true, Born: math.MaxInt,
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

// Rules returns the configuration of the rules about time of the route.
func (c *Config) Rules() condition.Config {
	return condition.Config{
		Sources: c.Sources, Ops: c.Ops, Condition: c.HasCondition(), Version: c.When.Version, For: c.When.For, Every: c.When.Every,
		Existing: c.Existing, Known: c.Known, LooksUp: c.Ready != nil, Hold: c.Hold, Limit: c.Limit.config(),
		Object: c.When.Object, Resource: c.When.Resource,
	}
}
