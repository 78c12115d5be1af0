package condition

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Holding is one object for which the condition of a route holds, or whose delete is held.
type Holding struct {
	Source string
	Key    event.Key
	UID    string
	Since  time.Time
	Due    time.Time // of the next report; zero: none is scheduled
	// pending, entered (reported), skipped (it held before the route began) or suppressed (by a
	// limit); or gone (a held delete)
	State  string
	Repeat int // the number of reminders reported
}

// compare orders holdings by source, namespace and name.
func (h *Holding) compare(o *Holding) int {
	return cmp.Or(strings.Compare(h.Source, o.Source), strings.Compare(h.Key.Namespace, o.Key.Namespace), strings.Compare(h.Key.Name, o.Key.Name))
}

// Page returns the first n holdings after another one, in the order of source, namespace and name.
// It keeps at most 2n in memory.
func (r *Rules) Page(after Holding, n int, now time.Time) []Holding {
	return pageOf(concat(r.Conditions.active(now), r.Holds.active(now)), after, n)
}

// Of returns the holding of one object. ok is false if there is none.
func (r *Rules) Of(source string, key event.Key, now time.Time) (h Holding, ok bool) {
	if h, ok = r.Conditions.of(source, key, now); ok {
		return h, true
	}
	return r.Holds.of(source, key, now)
}

func concat(all ...iter.Seq[Holding]) iter.Seq[Holding] {
	return func(yield func(Holding) bool) {
		for _, some := range all {
			for h := range some {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// pageOf returns the first n holdings after another one. It keeps at most 2n in memory.
func pageOf(all iter.Seq[Holding], after Holding, n int) (found []Holding) {
	order := func(a, b Holding) int { return a.compare(&b) }
	full := false // found begins with n holdings in order; later ones are skipped
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
