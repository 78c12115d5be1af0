package rules

import (
	"iter"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
)

// group is one key of the limit: the objects for which the condition holds and is told, or waits
// until the limit allows that. A receiver takes them for one thing, so that its end is told once,
// when the condition holds for none of them.
type group struct {
	key        string
	n          int        // its objects
	reported   bool       // Entered was told of one of them, and Left was not told since
	several    bool       // Entered was told of more than one of them since it is reported
	head, tail *Condition // those that wait, in the order in which they are told
	waiting    int
}

// member is the place of a condition in its group. It keeps its group until it ends, whatever the
// key of its object is by then: the end belongs to what was told under that key.
type member struct {
	*group

	prev, next *Condition // of those that wait
}

// groups are the groups of a route.
type groups struct {
	wheel   *timer.Wheel
	changes *changes
	byKey   map[string]*group
}

// queue puts a condition behind those of its group that wait.
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

// unqueue takes a condition out of those of its group that wait, if it does. The next one has its
// turn.
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

// rouse has the first that waits ask the limit again.
func (g *groups) rouse(of *group) {
	if first := of.head; first != nil {
		g.wheel.Set(&first.Node, g.wheel.Now(), first)
	}
}

// join puts a condition that is in no group into that of a key.
func (g *groups) join(c *Condition, key string) {
	of := g.byKey[key]
	if of == nil {
		of = &group{key: key}
		g.byKey[key] = of
	}
	of.n++
	c.member = &member{group: of}
	if c.state == told { // before there was a limit, or a restart
		of.several = of.several || of.reported
		of.reported = true
	}
}

// leave takes a condition that ends out of its group. It reports whether that is to be told, and
// whether more than its own Entered is ended by it.
func (g *groups) leave(c *Condition) (tell, several bool) {
	if c.member == nil {
		return c.state == told, false
	}
	of := c.member.group
	g.unqueue(c)
	c.member = nil
	if of.n--; of.n == 0 {
		delete(g.byKey, of.key)
		return of.reported, of.several
	}
	if of.reported && of.n == of.waiting { // nothing else says so in what is handed over
		g.changes.note(of.head)
	}
	return false, false
}

// dissolve forgets all groups, since there is no limit any more. What waits is told.
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

// postpone has another one of a group have its turn, since the object of the first that waits is
// not there.
func (g *groups) postpone(c *Condition, now time.Time) {
	if c.member != nil {
		g.unqueue(c)
		g.queue(c)
		c = c.member.head
	}
	g.wheel.Set(&c.Node, g.wheel.In(now)+missingFor, c)
}

// rejoin puts a restored condition into the group of a key; empty: of its own. The first that waits
// asks the limit at once, which knows what it knew before.
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

// missingFor is the pause after a condition whose object is not there.
const missingFor = time.Second

// ownKey is the key of a condition whose object counts by itself. It is that of the limit for such
// an object.
func (c *Condition) ownKey() string { return "o" + c.recordKey() }
