package rules

import (
	"iter"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// group is one key of the limit: its objects for which the condition holds, and which are reported
// or suppressed. A receiver sees the key as one thing, so Left is reported once, when the condition
// holds for none of its objects.
type group struct {
	key string
	n   int // the number of objects
	// Entered was reported for one of them, and Left has not been reported since
	reported   bool
	several    bool       // Entered was reported for more than one of them since reported was set
	head, tail *Condition // the suppressed conditions, in the order of their reports
	waiting    int
}

// member is the place of a condition in its group. A condition stays in its group until it ends,
// even if the key of its object changes, because Left must carry the key of Entered.
type member struct {
	*group

	prev, next *Condition // among the suppressed conditions of the group
}

type groups struct {
	wheel   *timer.Wheel
	changes *changes
	byKey   map[string]*group
}

// queue appends a condition to the suppressed ones of its group.
func (g *groups) queue(c *Condition) {
	m := c.member
	m.prev = m.tail
	if m.prev != nil {
		m.prev.member.next = c
	} else {
		m.head = c
	}
	m.tail = c
	m.waiting++
	g.wheel.Stop(&c.Node)
}

// unqueue removes a condition from the suppressed ones of its group, and schedules the next.
func (g *groups) unqueue(c *Condition) {
	m := c.member
	if m.head != c && m.prev == nil {
		return
	}
	first := m.head == c
	if first {
		m.head = m.next
	} else {
		m.prev.member.next = m.next
	}
	if m.next != nil {
		m.next.member.prev = m.prev
	} else {
		m.tail = m.prev
	}
	m.prev, m.next = nil, nil
	m.waiting--
	if first {
		g.rouse(m.group)
	}
}

// rouse schedules a request to the limit for the first suppressed condition.
func (g *groups) rouse(of *group) {
	if first := of.head; first != nil {
		g.wheel.Set(&first.Node, g.wheel.Now(), first)
	}
}

// join adds a condition that has no group to the group of a key.
func (g *groups) join(c *Condition, key string) {
	of := g.byKey[key]
	if of == nil {
		of = &group{key: key}
		g.byKey[key] = of
	}
	of.n++
	c.member = &member{group: of}
	if c.state == reported { // reported before the limit was configured, or before a restart
		of.several = of.several || of.reported
		of.reported = true
	}
}

// leave removes an ending condition from its group. It reports whether Left is due, and whether
// that Left ends more than one Entered.
func (g *groups) leave(c *Condition) (report, several bool) {
	if c.member == nil {
		return c.state == reported, false
	}
	of := c.member.group
	g.unqueue(c)
	c.member = nil
	if of.n--; of.n == 0 {
		delete(g.byKey, of.key)
		return of.reported, of.several
	}
	// only the records of the members say that the group is reported
	if of.reported && of.n == of.waiting {
		g.changes.note(of.head)
	}
	return false, false
}

// dissolve removes all groups, because the limit was removed. Suppressed conditions become due.
func (g *groups) dissolve(all iter.Seq[*Condition]) {
	if len(g.byKey) == 0 {
		return
	}
	clear(g.byKey)
	for c := range all {
		if c.member == nil {
			continue
		}
		c.member = nil
		g.changes.note(c)
		if c.state == suppressed {
			g.wheel.Set(&c.Node, g.wheel.Now(), c)
		}
	}
}

// postpone moves a condition whose object is missing behind the other suppressed ones, and
// schedules the next.
func (g *groups) postpone(c *Condition, now time.Time) {
	if c.member != nil {
		g.unqueue(c)
		g.queue(c)
		c = c.member.head
	}
	g.wheel.Set(&c.Node, g.wheel.In(now)+missingFor, c)
}

// rejoin adds a restored condition to the group of a key; empty: a group of its own. The first
// suppressed condition queries the limit at once; the state of the limit is restored separately.
func (g *groups) rejoin(c *Condition, key string, record byte) {
	if key == "" {
		key = c.ownKey()
	}
	g.join(c, key)
	of := c.member.group
	of.reported = of.reported || record&recordReported != 0
	of.several = of.several || record&recordSeveral != 0
	if c.state == suppressed {
		g.queue(c)
		g.rouse(of)
	}
}

// missingFor is the pause before a condition with a missing object is tried again.
const missingFor = time.Second

// ownKey is the key of a condition whose object is a group by itself. The limit uses the same key
// for such an object.
func (c *Condition) ownKey() string { return "o" + c.recordKey() }
