package kubernetes

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// limits counts what routes write. A write that is tried again is counted once.
type limits struct {
	deletes, writes, perObject rate

	mu      sync.Mutex
	windows map[counted]*window
	swept   time.Time
}

// counted is what has a window: the deletes or writes of a route, or its writes to an object.
type counted struct{ route, object, what string }

// window has what happened in the last time, the oldest first.
type window struct {
	rate  rate
	marks []mark
}

type mark struct {
	at time.Time
	id string
}

func newLimits(deletes, writes, perObject rate) *limits {
	return &limits{deletes: deletes, writes: writes, perObject: perObject, windows: make(map[counted]*window)}
}

// take counts a write of a route under an id, unless it is counted already. The error names the limit that it would exceed, and the route
// and the object; then nothing is counted.
func (l *limits) take(now time.Time, route, id string, op *operation) (counted bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	kinds := l.of(route, op)
	for _, k := range kinds {
		if w := l.window(k); !w.has(now, id) && len(w.marks) >= k.rate.n {
			return false, k.exceeded(op)
		}
	}
	for _, k := range kinds {
		if w := l.window(k); !w.has(now, id) {
			w.marks = append(w.marks, mark{now, id})
			counted = true
		}
	}
	return counted, nil
}

func (l *limits) window(k limit) *window {
	w := l.windows[k.counted]
	if w == nil {
		w = &window{rate: k.rate}
		l.windows[k.counted] = w
	}
	return w
}

// giveBack takes back a write that was counted, and not done.
func (l *limits) giveBack(route, id string, op *operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.of(route, op) {
		if w := l.windows[k.counted]; w != nil {
			w.marks = slices.DeleteFunc(w.marks, func(m mark) bool { return m.id == id })
		}
	}
}

// limit is a limit that a write falls under.
type limit struct {
	counted
	rate rate
}

func (l *limits) of(route string, op *operation) []limit {
	kinds := make([]limit, 0, 3)
	if l.writes.per > 0 {
		kinds = append(kinds, limit{counted{route, "", "maxWrites"}, l.writes})
	}
	if l.deletes.per > 0 && op.removes() {
		kinds = append(kinds, limit{counted{route, "", "maxDeletes"}, l.deletes})
	}
	if l.perObject.per > 0 && op.verb != verbEvent { // each makes an object of its own
		kinds = append(kinds, limit{counted{route, op.target.object(), "maxPerObject"}, l.perObject})
	}
	return kinds
}

func (k *limit) exceeded(op *operation) error {
	switch k.what {
	case "maxPerObject":
		return fmt.Errorf("route %q has written %s %d times within %s (maxPerObject), which is what a route does that is set off by its own writes",
			k.route, op.target, k.rate.n, shortly(k.rate.per))
	case "maxDeletes":
		return fmt.Errorf("route %q has deleted %d objects within %s (maxDeletes), and would delete %s next", k.route, k.rate.n, shortly(k.rate.per), op.target)
	}
	return fmt.Errorf("route %q has written %d times within %s (maxWrites), and would write %s next", k.route, k.rate.n, shortly(k.rate.per), op.target)
}

// has forgets what is too old and reports whether an id is there.
func (w *window) has(now time.Time, id string) bool {
	old := 0
	for old < len(w.marks) && now.Sub(w.marks[old].at) >= w.rate.per {
		old++
	}
	w.marks = slices.Delete(w.marks, 0, old)
	return slices.ContainsFunc(w.marks, func(m mark) bool { return m.id == id })
}

// sweep forgets, every now and then, windows in which nothing is left.
func (l *limits) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for k, w := range l.windows {
		if w.has(now, ""); len(w.marks) == 0 {
			delete(l.windows, k)
		}
	}
}
