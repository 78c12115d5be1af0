package condition

import (
	"slices"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
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
	// Untold is called with each report of a condition, and each held delete, that is not reported,
	// or not yet, under the lock of the route; nil: it is not called.
	Untold func(rules.Untold)
	// Durable: an edge is delivered only after its state is saved, see [Conditions.Observe].
	Durable bool
}

// Owner is called by timers, without any lock and from any goroutine. It takes the lock of the
// route and calls Due and Fire.
type Owner interface {
	ConditionDue(c *rules.Condition)
	HoldDue(a *rules.DeleteHold)
}

// settings returns the configuration of the states: that of the condition of the route, with its
// limit.
func (c *Conditions) settings(limit *rules.Limit) rules.ConditionConfig {
	if !c.cfg.HasCondition() {
		return rules.ConditionConfig{}
	}
	settings := rules.ConditionConfig{Sources: c.cfg.Sources, For: c.cfg.When.For, Every: c.cfg.When.Every, Existing: c.cfg.Existing}
	if c.cfg.Limit.On() && slices.Contains(c.cfg.Ops, event.Entered) { // Left alone is not limited
		settings.Limit, settings.OnlyEntered = limit, !slices.Contains(c.cfg.Ops, event.Left)
	}
	return settings
}
