package chaos

import (
	"fmt"
	"testing"
	"time"
)

// chain has the events that the routes behind the route state have delivered.
type chain struct {
	happened map[string]int // by group, the events of the route state
	passed   map[string]int // by group, those of the route few
	counted  map[string]int // the same with their suppressed counts
	joined   map[string]bool
	state    []string // ids
}

func (b *ruleBook) chained(told []ruleEvent) *chain {
	c := &chain{happened: make(map[string]int), passed: make(map[string]int), counted: make(map[string]int), joined: make(map[string]bool)}
	for _, e := range told {
		switch group := b.groupOf(e.K8sUID); e.Route {
		case "state":
			c.state = append(c.state, e.ID)
			c.happened[group]++
		case "few":
			c.passed[group]++
			c.counted[group] += 1 + e.data.Suppressed
		case "joined":
			for _, id := range e.data.IDs {
				c.joined[id] = true
			}
		}
	}
	return c
}

// missing returns an event that no group has, or "".
func (c *chain) missing() string {
	for _, id := range c.state {
		if !c.joined[id] {
			return fmt.Sprintf("no group has event %s of the route state", id)
		}
	}
	return ""
}

// compareChained expects that the limit counts everything that happened before its last event, lets
// one pass at the beginning of each life at most, and one each second, and that the groups have
// nothing else than the events.
func (b *ruleBook) compareChained(t *testing.T, happened map[string]int) {
	t.Helper()
	c := b.chained(b.told)
	most := 2*b.lives + int(time.Since(b.began)/time.Second)
	for _, group := range groups() {
		if c.counted[group] < happened[group] {
			t.Errorf("few: group %s has %d events, and %d were delivered or counted", group, happened[group], c.counted[group])
		}
		if c.passed[group] > most || c.passed[group] == c.counted[group] {
			t.Errorf("few: %d of %d events of group %s passed, and at most %d may", c.passed[group], c.counted[group], group, most)
		}
	}
	known := make(map[string]bool)
	for _, id := range c.state {
		known[id] = true
	}
	for id := range c.joined {
		if !known[id] {
			t.Errorf("joined: the route state did not deliver event %s", id)
		}
	}
}
