package condition

import (
	"cmp"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Env is shared by the rules of all routes, except Owner, which belongs to one route, and the
// shares, which belong to the routes of one owner. It is immutable.
type Env struct {
	Wheel  *timer.Wheel
	Census *rules.Census
	Owner  Owner
	// the shares of the keys of the limit, of the objects that conditions and delete holds track,
	// and of the bytes of held deletes; nil: no share
	Keys, Objects, HeldBytes *rules.Share
	// Durable: an edge is delivered only after its state is saved, see [Conditions.Observe].
	Durable bool
}

// Owner is called by timers, without any lock and from any goroutine. It takes the lock of the
// route and calls Due and Fire.
type Owner interface {
	ConditionDue(c *rules.Condition)
	HoldDue(a *rules.DeleteHold)
}

// Config is the configuration of the rules of a route.
type Config struct {
	Sources []string
	Ops     []event.Op // of the edges that the route wants
	// Condition: the route has a condition. Version changes when the condition may hold for other
	// objects: then all objects are evaluated again. For and Every are those of
	// [rules.ConditionConfig].
	Condition  bool
	Version    string
	For, Every time.Duration
	Existing   bool // also report conditions that held before the route began
	Known      bool // the route existed before, so existing objects are not new to it
	// the condition looks up other objects: no object is evaluated until they are in the cache
	LooksUp bool

	Hold  time.Duration     // the length of delete holds; 0: deletes are not held
	Limit rules.LimitConfig // Every 0: there is no limit

	// Object returns a cached object, or nil. It is called under the lock of the route. nil: there
	// is no cache.
	Object func(source string, key event.Key) *event.Object
	// Resource returns the resource that a source watches, or nil. nil: no resource is known.
	Resource func(source string) *event.Resource
}

// resourceOf returns the resource that a source watches, or otherwise.
func (c *Config) resourceOf(source string, otherwise *event.Resource) *event.Resource {
	if c.Resource != nil {
		if known := c.Resource(source); known != nil {
			return known
		}
	}
	return otherwise
}

// formerResource returns the resource of a source that is no longer configured, of which only the
// cluster is known.
func (c *Config) formerResource() *event.Resource {
	former := &event.Resource{}
	for _, source := range c.Sources {
		former.Cluster = cmp.Or(former.Cluster, c.resourceOf(source, former).Cluster)
	}
	return former
}

// rules returns the configuration of the conditions with the limit of the route.
func (c *Config) rules(limit *rules.Limit) rules.ConditionConfig {
	if !c.Condition {
		return rules.ConditionConfig{}
	}
	cfg := rules.ConditionConfig{Sources: c.Sources, For: c.For, Every: c.Every, Skip: !c.Existing}
	if c.Limit.Every > 0 && slices.Contains(c.Ops, event.Entered) { // Left alone is not limited
		cfg.Limit, cfg.OnlyEntered = limit, !slices.Contains(c.Ops, event.Left)
	}
	return cfg
}
