package pipeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// Holding is one object for which the condition of a route holds.
type Holding struct {
	Source string
	Key    event.Key
	UID    string
	Since  time.Time
	Due    time.Time // when it is told, or told again, if that is to come; zero: it is not
	State  string    // pending, told, skipped (it held before the route looked) or suppressed (by a limit)
	Repeat int       // how often it was told again
}

// Active returns for which objects the condition of a route holds, by source, namespace and name. ok is false if there is no such route, or
// it has no condition.
func (p *Pipeline) Active(name string) (all []Holding, ok bool) {
	r := p.route(name)
	if r == nil || !r.isLevel() {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.level == nil {
		return nil, true
	}
	now := r.now()
	for c := range r.level.All() {
		all = append(all, r.level.holding(c, now))
	}
	slices.SortFunc(all, func(a, b Holding) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Key.Namespace, b.Key.Namespace), strings.Compare(a.Key.Name, b.Key.Name))
	})
	return all, true
}

func (lv *level) holding(c *rules.Condition, now time.Time) Holding {
	s := lv.Describe(c, now)
	return Holding{
		Source: c.Source(), Key: c.Object().Key(), UID: c.Object().UID(), Since: s.Since, Due: s.Due, State: s.State, Repeat: s.Repeat,
	}
}
