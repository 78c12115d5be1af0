package rules

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Edge is an edge that is to be delivered. An Entered that a limit let through has the Pass, which
// goes back to the limit if nothing comes of the edge; then [Conditions.Rouse].
type Edge struct {
	*event.Delta

	Pass *Pass
}

// pass asks the limit whether Entered may be told of a condition. If not, the condition waits,
// unless it was told before: then it is a reminder, and there will be another one. What was never
// told goes before reminders, and in its order.
func (s *Conditions) pass(c *Condition, key string, now time.Time) (pass *Pass, ok bool) {
	limit := s.cfg.Limit
	if limit == nil {
		return nil, true
	}
	if c.member == nil {
		s.groups.join(c, key)
		s.changes.note(c)
	}
	g := c.member.group
	again := c.state == told
	switch {
	case again && g.head != nil:
		limit.Suppress(g.key, 1, now)
	case again:
		pass = limit.Allow(g.key, 1, now)
	case g.head == nil || g.head == c:
		pass = limit.Allow(g.key, 0, now) // it is counted where it waits, see Pass.Waiting
	}
	switch {
	case pass != nil:
		s.groups.unqueue(c)
		g.several = g.several || g.reported && !again
		g.reported = true
		pass.Waiting = g.waiting
	case again:
		s.held++
	default:
		s.hold(c, now)
	}
	return pass, pass != nil
}

// hold has a condition wait until the limit lets it be told.
func (s *Conditions) hold(c *Condition, now time.Time) {
	g := c.member.group
	if c.state != suppressed {
		s.become(c, suppressed)
		s.groups.queue(c)
		s.held++
	}
	if g.head == c {
		s.wheel.Set(&c.Node, s.wheel.In(now)+s.cfg.Limit.Wait(g.key, now), c)
	}
}

// Rouse is called when a Pass was given back to the limit: another of its key may be told in its
// place.
func (s *Conditions) Rouse(p *Pass) {
	if g := s.groups.byKey[p.bucket.key]; g != nil {
		s.groups.rouse(g)
	}
}

// TakeHeld returns how often the limit held an edge back since the last call.
func (s *Conditions) TakeHeld() int {
	n := s.held
	s.held = 0
	return n
}
