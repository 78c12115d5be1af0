// Package ledger compares a known history of objects with the deliveries about them: what is
// missing, what was never there, what came out of order, and how much came again.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Delivery is an event that a sink got.
type Delivery struct {
	ID, Route   string
	UID         string
	Op, Version string // the version of a delete does not matter
	By          string // the process that delivered it
	At          time.Time
}

// deleted is the version of a delete in a mark.
const deleted = "deleted"

// mark is one change of one object.
type mark struct{ uid, version string }

func markOf(d Delivery) mark {
	if d.Op == deleted {
		return mark{d.UID, deleted}
	}
	return mark{d.UID, d.Version}
}

// History records changes. Changes of one key are recorded in their order. It is safe for
// concurrent use.
type History struct {
	mu      sync.Mutex
	order   map[mark]int
	made    map[mark]time.Time
	objects map[string]*object // by uid
	n       int
}

type object struct {
	name, key string
	last      mark
}

// Changed records a new version of an object, whose order key may be shared with other objects.
func (h *History) Changed(uid, name, key, version string) { h.add(uid, name, key, version) }

// Deleted records the delete of an object.
func (h *History) Deleted(uid string) { h.add(uid, "", "", deleted) }

func (h *History) add(uid, name, key, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.order == nil {
		h.order, h.made, h.objects = map[mark]int{}, map[mark]time.Time{}, map[string]*object{}
	}
	o := h.objects[uid]
	if o == nil {
		o = &object{name: name, key: key}
		h.objects[uid] = o
	}
	h.n++
	o.last = mark{uid, version}
	h.order[o.last], h.made[o.last] = h.n, time.Now()
}

// Len returns the number of changes.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// Slowest returns the longest time from a change to its first delivery.
func (h *History) Slowest(deliveries []Delivery) (slowest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[mark]bool{}
	for _, d := range deliveries {
		m := markOf(d)
		if made, known := h.made[m]; known && !seen[m] {
			seen[m], slowest = true, max(slowest, d.At.Sub(made))
		}
	}
	return slowest
}

// Knows reports whether the history has an object.
func (h *History) Knows(uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.objects[uid] != nil
}

// Rule is what a route promises.
type Rule struct {
	Latest     bool // only the last state of each object; else each change
	Keyed      bool // the order is that of the key; else that of each object
	Duplicates int  // permitted number of deliveries of what was delivered before
	Returns    int  // permitted number of times that deliveries of one key go back: of lost processes
}

// Missing returns what has not been delivered, at most a few, or nothing. The deliveries are those
// of one route.
func (h *History) Missing(deliveries []Delivery, rule Rule) (problems []string) {
	const most = 5
	seen, begun := map[mark]bool{}, map[string]bool{}
	for _, d := range deliveries {
		seen[markOf(d)], begun[d.UID] = true, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.order {
		if o := h.objects[m.uid]; rule.Latest && (m != o.last || m.version == deleted && !begun[m.uid]) {
			continue // a later state follows, or it came and went while it was pending
		}
		if !seen[m] {
			problems = append(problems, fmt.Sprintf("lost: %s at %s", h.objects[m.uid].name, m.version))
		}
	}
	slices.Sort(problems)
	return problems[:min(len(problems), most)]
}

// reader goes through the deliveries of a route in the order of their arrival.
type reader struct {
	rule       Rule
	id         map[mark]string // of what was delivered
	high, last map[string]int  // by key: the latest change that was delivered, and the one delivered last
	returns    map[string]int  // by key
	duplicates int
	problems   []string
}

// Check compares the deliveries of one route, in the order of their arrival, with the history, and
// returns the number of duplicates. It does not report what is missing.
func (h *History) Check(deliveries []Delivery, rule Rule) (duplicates int, problems []string) {
	r := reader{rule: rule, id: map[mark]string{}, high: map[string]int{}, last: map[string]int{}, returns: map[string]int{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		m := markOf(d)
		at, known := h.order[m]
		if !known {
			r.problem("invented: %s of %s at %q by %s", d.Op, d.UID, d.Version, d.By)
			continue
		}
		o := h.objects[d.UID]
		key := d.UID
		if rule.Keyed {
			key = o.key
		}
		r.read(d, m, at, key, o.name)
	}
	if r.duplicates > rule.Duplicates {
		r.problem("%d duplicates, and at most %d are permitted", r.duplicates, rule.Duplicates)
	}
	for _, key := range slices.Sorted(maps.Keys(r.returns)) {
		if n := r.returns[key]; n > rule.Returns {
			r.problem("the deliveries of key %s went back %d times, and at most %d are permitted", key, n, rule.Returns)
		}
	}
	return r.duplicates, r.problems
}

func (r *reader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *reader) read(d Delivery, m mark, at int, key, name string) {
	id, again := r.id[m]
	switch {
	case again:
		if r.duplicates++; id != d.ID && !r.rule.Latest {
			r.problem("%s at %s has two ids, %s and %s", name, m.version, id, d.ID)
		}
	case at < r.high[key] && r.rule.Latest && r.rule.Returns > 0:
		// The lost process had replaced this state by a later one, which it delivered.
		r.duplicates++
	case at < r.high[key]:
		r.problem("swapped: %s at %s comes for the first time after a later change of its key, by %s", name, m.version, d.By)
	}
	if at < r.last[key] {
		r.returns[key]++
	}
	r.id[m], r.last[key], r.high[key] = d.ID, at, max(r.high[key], at)
}

// Reports compares the reports of a condition with those wanted: the operations by uid, in order.
// A report that comes again has the same id and counts once.
func Reports(deliveries []Delivery, want map[string][]string) (problems []string) {
	got, seen := map[string][]string{}, map[string]bool{}
	for _, d := range deliveries {
		if !seen[d.ID] {
			seen[d.ID] = true
			got[d.UID] = append(got[d.UID], d.Op)
		}
	}
	for uid, ops := range want {
		if !slices.Equal(got[uid], ops) {
			problems = append(problems, fmt.Sprintf("condition of %s: reported %q, want %q", uid, strings.Join(got[uid], ", "), strings.Join(ops, ", ")))
		}
	}
	for uid := range got {
		if want[uid] == nil {
			problems = append(problems, fmt.Sprintf("condition of %s: reported, although it never held", uid))
		}
	}
	slices.Sort(problems)
	return problems
}

// Different returns the number of different events.
func Different(deliveries []Delivery) int {
	ids := map[string]bool{}
	for _, d := range deliveries {
		ids[d.ID] = true
	}
	return len(ids)
}

// Counts compares the number of different events of each object with a limit.
func Counts(deliveries []Delivery, want map[string]int) (problems []string) {
	got, seen := map[string]int{}, map[string]bool{}
	for _, d := range deliveries {
		if !seen[d.ID] {
			seen[d.ID] = true
			got[d.UID]++
		}
	}
	for uid, n := range want {
		if got[uid] != n {
			problems = append(problems, fmt.Sprintf("limit of %s: %d events, want %d", uid, got[uid], n))
		}
	}
	slices.Sort(problems)
	return problems
}
