package condition

import (
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// maxMissed bounds the missed objects of a route: a team may have hundreds of routes. Beyond it all
// objects are evaluated again.
const maxMissed = 1000

// MissedObject is an object for which the condition was not evaluated in its newest state.
type MissedObject struct {
	Source string
	Key    event.Key
	UID    string

	number uint64 // of the miss
}

// missed is the missed objects of a route.
type missed struct {
	objects map[subject]MissedObject
	more    bool   // than the map has, since the last BeginRescan
	count   uint64 // of all misses
}

// forget drops all missed objects. The numbers of later misses are new nevertheless.
func (m *missed) forget() { *m = missed{count: m.count} }

type subject struct {
	source string
	key    event.Key
}

func subjectOf(d *event.Delta) subject { return subject{d.Source, d.Key()} }

// Miss records that the condition was not evaluated for a delta. Only the newest state of the
// object counts then. Until it is evaluated, the timer of its condition does not fire. The state
// file says that all objects must be evaluated after a restart.
func (c *Conditions) Miss(d *event.Delta) {
	if c.states == nil {
		return
	}
	m, of := &c.missed, subjectOf(d)
	if _, known := m.objects[of]; !known && len(m.objects) >= maxMissed {
		c.first = c.first && !c.rescanned
		m.more, c.rescanned, c.noted = true, false, false
		return
	}
	if m.objects == nil {
		m.objects = map[subject]MissedObject{}
	}
	if len(m.objects) == 0 {
		c.noted = false
	}
	m.count++
	// The texts of an object are parts of its JSON, which the cache need not keep for them.
	of.key.Namespace, of.key.Name = strings.Clone(of.key.Namespace), strings.Clone(of.key.Name)
	m.objects[of] = MissedObject{d.Source, of.key, strings.Clone(d.Object().UID()), m.count}
}

// AnyMissed reports whether the condition was not evaluated for the newest state of some object.
func (c *Conditions) AnyMissed() bool { return len(c.missed.objects) > 0 || c.missed.more }

// NextMissed returns a missed object. ok is false if there is none.
func (c *Conditions) NextMissed() (next MissedObject, ok bool) {
	for _, next := range c.missed.objects {
		return next, true
	}
	return next, false
}

// Done is called after a missed object was evaluated, or was not in the cache. It has no effect if
// the object was missed again.
func (c *Conditions) Done(m MissedObject) {
	if s := (subject{m.Source, m.Key}); c.missed.objects[s] == m {
		c.evaluated(s)
	}
}

// evaluated is called when the condition was evaluated for the newest state of an object.
func (c *Conditions) evaluated(s subject) {
	if len(c.missed.objects) == 0 {
		return
	}
	if delete(c.missed.objects, s); len(c.missed.objects) == 0 {
		c.noted = false
	}
}

// isMissed reports whether an object is missed.
func (c *Conditions) isMissed(source string, key event.Key) bool {
	_, ok := c.missed.objects[subject{source, key}]
	return ok
}
