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

// compare orders holdings by source, namespace and name.
func (h *Holding) compare(o *Holding) int {
	return cmp.Or(strings.Compare(h.Source, o.Source), strings.Compare(h.Key.Namespace, o.Key.Namespace), strings.Compare(h.Key.Name, o.Key.Name))
}

// Active returns for which objects the condition of a route holds, by source, namespace and name: the first ones behind after, which is
// that of the page before, at most limit. more: there are others behind these. ok is false if there is no such route, or it has no condition.
func (p *Pipeline) Active(name string, after Holding, limit int) (page []Holding, more, ok bool) {
	r := p.route(name)
	if r == nil || !r.isLevel() {
		return nil, false, false
	}
	r.mu.Lock()
	if r.level != nil {
		page = r.level.page(after, limit+1, r.now())
	}
	r.mu.Unlock()
	if more = len(page) > limit; more {
		page = page[:limit]
	}
	return page, more, true
}

// page returns the first n behind after. It is called under the lock, and keeps few of many.
func (lv *level) page(after Holding, n int, now time.Time) (found []Holding) {
	order := func(a, b Holding) int { return a.compare(&b) }
	full := false // found began with n in order, and what is behind the last of these is no matter
	for c := range lv.All() {
		h := lv.holding(c, now)
		if h.compare(&after) <= 0 || full && h.compare(&found[n-1]) >= 0 {
			continue
		}
		if found = append(found, h); len(found) == 2*n {
			slices.SortFunc(found, order)
			found, full = found[:n], true
		}
	}
	slices.SortFunc(found, order)
	return found[:min(n, len(found))]
}

func (lv *level) holding(c *rules.Condition, now time.Time) Holding {
	s := lv.Describe(c, now)
	return Holding{
		Source: c.Source(), Key: c.Object().Key(), UID: c.Object().UID(), Since: s.Since, Due: s.Due, State: s.State, Repeat: s.Repeat,
	}
}
