package kv

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// MaxKey is the length of the longest key of a handler, in bytes.
	MaxKey = 512
	// maxTTL is the least number of milliseconds that means for ever: 100 years.
	maxTTL = int64(100 * 365 * 24 * time.Hour / time.Millisecond)
)

// Overlay contains the writes of one call over a KV. The call itself sees them at once; other calls
// see them after [Overlay.Commit] has succeeded. It is safe for concurrent use.
type Overlay struct {
	kv     plugins.KV
	shared plugins.SharedKV // kv, if it is one
	clock  timer.Clock
	limit  int64

	mu     sync.Mutex
	done   bool // the call is over
	writes []plugins.KVWrite
	latest map[string]int // in writes, by key
	growth int64          // of the bytes in use
	since  []change       // since the last Keep
	// of the values that were read or written, when that happened first; only of a shared KV
	revisions map[string]uint64
}

// change has the value that a write of a call has replaced.
type change struct {
	key    string
	before plugins.KVWrite // of the call, if it had written the key already
	first  bool            // it had not
	more   int64           // the growth of the bytes in use
}

// NewOverlay returns an overlay without writes. The KV may hold limit bytes, see [plugins.KVSize].
// It may be nil if the handler has none: only Commit and Reset may be called then.
func NewOverlay(kv plugins.KV, clock timer.Clock, limit int64) *Overlay {
	o := &Overlay{kv: kv, clock: clock, limit: limit}
	o.shared, _ = kv.(plugins.SharedKV)
	return o
}

// read returns a committed value. mu is held.
func (o *Overlay) read(key string) ([]byte, bool) {
	if o.shared == nil {
		return o.kv.Get(key)
	}
	value, revision, ok := o.shared.Read(key)
	if _, known := o.revisions[key]; !known {
		if o.revisions == nil {
			o.revisions = make(map[string]uint64)
		}
		o.revisions[key] = revision
	}
	return value, ok
}

// Get returns the value that the call sees.
func (o *Overlay) Get(key string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i, ok := o.latest[key]; ok {
		w := &o.writes[i]
		return w.Value, !w.Delete && (w.Expires.IsZero() || o.clock.Now().Before(w.Expires))
	}
	return o.read(key)
}

// Set records a value, which is not copied. It expires after ttl milliseconds, or never if ttl is 0
// or more than a century. The error is [plugins.ErrKVFull] if there is no room for it now. Commit
// checks the room again, because other calls may have committed.
func (o *Overlay) Set(key string, value []byte, ttl int64) error {
	w := plugins.KVWrite{Key: key, Value: value}
	if 0 < ttl && ttl < maxTTL {
		w.Expires = o.clock.Now().Round(0).Add(time.Duration(ttl) * time.Millisecond)
	}
	return o.put(w)
}

// Delete records the removal of a value.
func (o *Overlay) Delete(key string) error { return o.put(plugins.KVWrite{Key: key, Delete: true}) }

func (o *Overlay) put(w plugins.KVWrite) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return fmt.Errorf("key %q was written after the call had ended", w.Key)
	}
	more := -o.size(w.Key)
	if !w.Delete {
		more += plugins.KVSize(w.Key, w.Value)
	}
	if more > 0 && o.kv.Size()+o.growth+more > o.limit {
		return plugins.ErrKVFull
	}
	o.growth += more
	if i, ok := o.latest[w.Key]; ok {
		o.since = append(o.since, change{key: w.Key, before: o.writes[i], more: more})
		o.writes[i] = w
		return nil
	}
	o.since = append(o.since, change{key: w.Key, first: true, more: more})
	if o.latest == nil {
		o.latest = make(map[string]int)
	}
	o.latest[w.Key] = len(o.writes)
	o.writes = append(o.writes, w)
	return nil
}

// size returns the number of bytes that a key takes. mu is held.
func (o *Overlay) size(key string) int64 {
	if i, ok := o.latest[key]; ok && o.writes[i].Delete {
		return 0
	} else if ok {
		return plugins.KVSize(key, o.writes[i].Value)
	}
	if value, ok := o.read(key); ok {
		return plugins.KVSize(key, value)
	}
	return 0
}

// Keep ends a part of the call, such as a delta, whose writes count if the call does.
func (o *Overlay) Keep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep()
}

func (o *Overlay) keep() {
	clear(o.since)
	o.since = o.since[:0]
}

// Undo ends a part of the call whose writes do not count: it drops those since the last Keep.
func (o *Overlay) Undo() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range slices.Backward(o.since) {
		o.growth -= c.more
		if !c.first {
			o.writes[o.latest[c.key]] = c.before
			continue
		}
		delete(o.latest, c.key)
		o.writes = o.writes[:len(o.writes)-1]
	}
	o.keep()
}

// End ends the call, so that later writes fail, and reports whether it has written.
func (o *Overlay) End() (written bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	return len(o.writes) > 0
}

// Commit applies the writes, all or none, and ends the call. The error is [plugins.ErrKVFull] if
// other calls have taken the room, or one of [plugins.SharedKV].
func (o *Overlay) Commit() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	o.keep()
	writes := o.writes
	if len(writes) == 0 {
		return nil
	}
	revisions := o.revisions
	o.writes, o.growth, o.revisions = nil, 0, nil // the KV may keep them
	clear(o.latest)
	if o.shared != nil {
		return o.shared.CommitIf(writes, revisions, o.limit)
	}
	return o.kv.Commit(writes, o.limit)
}

// Reset drops uncommitted writes, and begins another call.
func (o *Overlay) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.writes)
	clear(o.latest)
	clear(o.revisions)
	o.keep()
	o.writes, o.growth, o.done = o.writes[:0], 0, false
}
