package kubernetes

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// limits counts the writes of routes. It counts a retried write once. Deletes are stored in memory,
// so that they survive a restart.
type limits struct {
	deletes, writes, perObject rate
	memory                     plugins.KV // nil: no deletes are stored

	mu      sync.Mutex
	windows map[counted]*window
	swept   time.Time
}

// whatDeletes is the kind of the stored windows.
const whatDeletes = "maxDeletes"

// counted identifies a window: the deletes or writes of a route, or its writes to an object.
type counted struct{ route, object, what string }

// window contains the recent writes, the oldest first.
type window struct {
	rate  rate
	marks []mark
}

type mark struct {
	at time.Time
	id uint64 // a hash
}

func newLimits(deletes, writes, perObject rate, memory plugins.KV) *limits {
	return &limits{deletes: deletes, writes: writes, perObject: perObject, memory: memory, windows: make(map[counted]*window)}
}

func idOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// take counts a write of a route under an id, unless it was counted before. If a limit would be
// exceeded, nothing is counted, and the error names the limit, the route and the object.
func (l *limits) take(now time.Time, route, name string, op *operation) (counted bool, err error) {
	id := idOf(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	kinds := l.of(route, op)
	for _, k := range kinds {
		if w := l.window(k, now); !w.has(now, id) && len(w.marks) >= k.rate.n {
			return false, k.exceeded(op)
		}
	}
	for _, k := range kinds {
		if w := l.window(k, now); !w.has(now, id) {
			w.marks = append(w.marks, mark{now, id})
			l.remember(k.counted, w)
			counted = true
		}
	}
	return counted, nil
}

func (l *limits) window(k limit, now time.Time) *window {
	w := l.windows[k.counted]
	if w == nil {
		w = &window{rate: k.rate, marks: l.recall(k.counted, now)}
		l.windows[k.counted] = w
	}
	return w
}

// giveBack removes a counted write that was not executed.
func (l *limits) giveBack(route, name string, op *operation) {
	id := idOf(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.of(route, op) {
		if w := l.windows[k.counted]; w != nil {
			w.marks = slices.DeleteFunc(w.marks, func(m mark) bool { return m.id == id })
			l.remember(k.counted, w)
		}
	}
}

// resume resets the windows of a route.
func (l *limits) resume(route string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, w := range l.windows {
		if k.route == route {
			w.marks = nil
			l.remember(k, w)
		}
	}
	deletes := counted{route, "", whatDeletes} // it may not have been loaded since the start
	l.remember(deletes, &window{})
}

// limit is one of the limits of a write.
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
		kinds = append(kinds, limit{counted{route, "", whatDeletes}, l.deletes})
	}
	if l.perObject.per > 0 && op.verb != verbEvent { // each creates a new object
		kinds = append(kinds, limit{counted{route, op.target.object(), "maxPerObject"}, l.perObject})
	}
	return kinds
}

func (k *limit) exceeded(op *operation) error {
	switch k.what {
	case "maxPerObject":
		return fmt.Errorf("route %q has written %s %d times within %s (maxPerObject), which indicates that its own writes trigger it",
			k.route, op.target, k.rate.n, shortly(k.rate.per))
	case whatDeletes:
		return fmt.Errorf("route %q has deleted %d objects within %s (maxDeletes), and would delete %s next", k.route, k.rate.n, shortly(k.rate.per), op.target)
	}
	return fmt.Errorf("route %q has written %d times within %s (maxWrites), and would write %s next", k.route, k.rate.n, shortly(k.rate.per), op.target)
}

// has removes expired marks and reports whether an id is in the window.
func (w *window) has(now time.Time, id uint64) bool {
	old := 0
	for old < len(w.marks) && now.Sub(w.marks[old].at) >= w.rate.per {
		old++
	}
	w.marks = slices.Delete(w.marks, 0, old)
	return slices.ContainsFunc(w.marks, func(m mark) bool { return m.id == id })
}

// sweep removes empty windows from time to time.
func (l *limits) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for k, w := range l.windows {
		if w.has(now, 0); len(w.marks) == 0 {
			delete(l.windows, k)
			l.remember(k, w)
		}
	}
}

// memoryKey returns the key of a stored window; empty: it is not stored.
func (l *limits) memoryKey(k counted) string {
	if l.memory == nil || k.what != whatDeletes {
		return ""
	}
	return k.what + "\x00" + k.route
}

// remember stores a window, with 16 bytes per mark: its time and its id.
func (l *limits) remember(k counted, w *window) {
	key := l.memoryKey(k)
	if key == "" {
		return
	}
	write := plugins.KVWrite{Key: key, Delete: len(w.marks) == 0}
	write.Value = make([]byte, 0, 16*len(w.marks))
	for _, m := range w.marks {
		write.Value = binary.BigEndian.AppendUint64(write.Value, uint64(m.at.UnixNano())) //nolint:gosec // back in recall
		write.Value = binary.BigEndian.AppendUint64(write.Value, m.id)
	}
	if n := len(w.marks); n > 0 {
		write.Expires = w.marks[n-1].at.Add(w.rate.per)
	}
	_ = l.memory.Commit([]plugins.KVWrite{write}, math.MaxInt64) // the store has no limit
}

// recall returns the stored marks of a window. If the wall clock was set back, the time of a mark
// is at most now.
func (l *limits) recall(k counted, now time.Time) (marks []mark) {
	key := l.memoryKey(k)
	if key == "" {
		return nil
	}
	value, _ := l.memory.Get(key)
	for ; len(value) >= 16; value = value[16:] {
		at := time.Unix(0, int64(binary.BigEndian.Uint64(value))) //nolint:gosec // it was one
		if at.After(now) {
			at = now
		}
		marks = append(marks, mark{at, binary.BigEndian.Uint64(value[8:])})
	}
	return marks
}
