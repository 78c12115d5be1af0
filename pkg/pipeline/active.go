package pipeline

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rules"
)

// Holding is one object for which the condition of a route holds, or that is gone and may come back (see Route.Gone).
type Holding struct {
	Source string
	Key    event.Key
	UID    string
	Since  time.Time
	Due    time.Time // when it is told, or told again, if that is to come; zero: it is not
	State  string    // pending, told, skipped (it held before the route looked) or suppressed (by a limit); or gone
	Repeat int       // how often it was told again
}

// compare orders holdings by source, namespace and name.
func (h *Holding) compare(o *Holding) int {
	return cmp.Or(strings.Compare(h.Source, o.Source), strings.Compare(h.Key.Namespace, o.Key.Namespace), strings.Compare(h.Key.Name, o.Key.Name))
}

// Active returns for which objects the condition of a route holds, or which are gone and may come back, by source, namespace and name: the
// first ones behind after, which is that of the page before, at most limit. more: there are others behind these. ok is false if there is no
// such route, or it has no condition and does not wait either.
func (p *Pipeline) Active(name string, after Holding, limit int) (page []Holding, more, ok bool) {
	r := p.route(name)
	if r == nil || !r.isLevel() && r.cfg.Gone == 0 {
		return nil, false, false
	}
	r.mu.Lock()
	page = pageOf(r.holdings(), after, limit+1)
	r.mu.Unlock()
	if more = len(page) > limit; more {
		page = page[:limit]
	}
	return page, more, true
}

// Holds returns what [Pipeline.Active] says of one object. ok is false if it says nothing of it.
func (p *Pipeline) Holds(name, source string, key event.Key) (h Holding, ok bool) {
	r := p.route(name)
	if r == nil {
		return h, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isLevel() && r.level != nil {
		if c := r.level.Of(source, key); c != nil {
			return r.level.holding(c, r.now()), true
		}
	}
	if r.cfg.Gone > 0 && r.absent != nil {
		if a := r.absent.Of(source, key); a != nil {
			return r.absent.holding(a, r.now()), true
		}
	}
	return h, false
}

// holdings yields all, in no order. It is called, and gone through, under the lock.
func (r *route) holdings() iter.Seq[Holding] {
	now := r.now()
	return func(yield func(Holding) bool) {
		if r.isLevel() && r.level != nil {
			for c := range r.level.All() {
				if !yield(r.level.holding(c, now)) {
					return
				}
			}
		}
		if r.cfg.Gone > 0 && r.absent != nil {
			for a := range r.absent.All() {
				if !yield(r.absent.holding(a, now)) {
					return
				}
			}
		}
	}
}

// pageOf returns the first n behind after. It keeps few of many.
func pageOf(all iter.Seq[Holding], after Holding, n int) (found []Holding) {
	order := func(a, b Holding) int { return a.compare(&b) }
	full := false // found began with n in order, and what is behind the last of these is no matter
	for h := range all {
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

func (ab *absent) holding(a *rules.Absence, now time.Time) Holding {
	d := a.Delta()
	since, due := ab.Describe(a, now)
	return Holding{Source: d.Source, Key: d.Key(), UID: d.Object().UID(), Since: since, Due: due, State: "gone"}
}
