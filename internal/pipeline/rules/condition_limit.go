package rules

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Edge is an edge to deliver. An Entered that a limit allowed has a Pass, and so has a Left with a
// suppressed count. If the edge is not delivered, the Pass is returned to the limit, followed by
// [Conditions.Rouse].
type Edge struct {
	*event.Delta

	Pass *Pass
}

// pass requests permission for an Entered report from the limit. A first report that is refused
// becomes suppressed; a refused reminder is dropped, as another one follows. First reports precede
// reminders, and keep their order.
// d is the change that made the condition hold; nil: a timer expired.
func (s *Conditions) pass(c *Condition, d *event.Delta, key string, now time.Time) (pass *Pass, ok bool) {
	limit := s.cfg.Limit
	if limit == nil {
		return nil, true
	}
	if c.member == nil {
		s.groups.join(c, key)
		s.changes.note(c)
	}
	// Ask the limit only for the first in the queue of the key, so that none overtakes another.
	g := c.member.group
	again := c.state == reported
	switch {
	case again && g.head != nil:
		limit.Suppress(g.key, 1, now)
	case again:
		pass = limit.Allow(g.key, 1, now)
	case g.head == nil || g.head == c:
		pass = limit.Allow(g.key, 0, now) // it is counted in Pass.Waiting
	}
	switch {
	case pass != nil:
		s.groups.unqueue(c)
		g.several = g.several || g.reported && !again
		g.reported = true
		pass.Waiting = g.waiting
	case again:
		s.held++
		s.untold(c, d, Suppressed, true, now.Add(limit.Wait(g.key, now)))
	default:
		s.hold(c, d, now)
	}
	return pass, pass != nil
}

// hold suppresses a condition until the limit allows its report.
func (s *Conditions) hold(c *Condition, d *event.Delta, now time.Time) {
	g := c.member.group
	again := c.state == suppressed
	if !again {
		s.become(c, suppressed)
		s.groups.queue(c)
		s.held++
	}
	until := time.Time{} // those before it come first
	if g.head == c {
		wait := s.cfg.Limit.Wait(g.key, now)
		s.wheel.Set(&c.Node, s.wheel.In(now)+wait, c)
		until = now.Add(wait)
	}
	if !again {
		s.untold(c, d, Delayed, true, until)
	}
}

// Rouse schedules the next suppressed condition of a key after its Pass was returned to the limit.
func (s *Conditions) Rouse(p *Pass) {
	if g := s.groups.byKey[p.bucket.key]; g != nil {
		s.groups.rouse(g)
	}
}

// TakeHeld returns the number of edges that the limit held back since the last call.
func (s *Conditions) TakeHeld() int {
	n := s.held
	s.held = 0
	return n
}
