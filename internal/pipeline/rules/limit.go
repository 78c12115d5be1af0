package rules

import (
	"encoding/binary"
	"errors"
	"maps"
	"time"
)

// LimitConfig configures a [Limit].
type LimitConfig struct {
	Every time.Duration // the interval at which one more delta of a key passes; more than 0
	// the number of deltas of a key that pass at once after a quiet time; 0: 1
	Burst int
	// MaxKeys bounds the memory; 0: 100,000. A new key beyond it, or beyond the [Share] of the
	// limit, evicts the key of this limit that was used the longest time ago. The next delta of the
	// evicted key passes, even if it is too early, and its count of suppressed deltas is lost.
	MaxKeys int
}

// keepSuppressed is the least time that a key with suppressed deltas is kept after its last use.
const keepSuppressed = 24 * time.Hour

// Limit bounds the rate of each key, and counts the suppressed deltas. In any time t, at most Burst
// + t/Every deltas of a key pass.
//
// It has no clock and no lock: the caller passes now, which must not go backwards. Intervals are
// measured with the monotonic clock if now has a reading of it (time.Now has), so a jump of the
// wall clock has no effect. The records of [Limit.Dirty] contain wall times, corrected for such
// jumps. Across a restart the wall clock counts; if it was set back, a key waits at most Burst
// times Every.
//
// A key is dropped when its state equals that of a new key: Burst could pass at once, and none was
// suppressed since the last pass. A key with suppressed deltas is kept for a day, and at least for
// ten times Every, after its last use. Each call of Allow drops a few keys.
type Limit struct {
	cfg   LimitConfig
	share *Share    // of the keys, with other limits
	base  time.Time // times are kept as durations since base
	keys  map[string]*bucket
	// the keys without suppressed deltas, the least recently used first
	withoutSuppressed buckets
	withSuppressed    buckets // the keys with suppressed deltas, likewise

	dirty   map[string]*bucket // the changes since the last Dirty; nil: the key was dropped
	evicted int                // the number of evicted keys
	crowded bool               // the last one was evicted because of the share
	passes  uint64
	clock   wallClock
}

// Pass is the permission for one delta of a key.
type Pass struct {
	Suppressed int // the number of suppressed deltas of the key since its last pass
	// the number of further suppressed conditions of the key, see [Conditions]
	Waiting int

	bucket     *bucket
	id, before uint64 // of this pass and of the one before it; 0: none
	every      time.Duration
}

// bucket is the state of a key. full is the time from which Burst may pass at once: each pass moves
// it on by Every, and never further than Burst times Every beyond now.
type bucket struct {
	key        string
	full       time.Duration
	lastUse    time.Duration
	suppressed int
	saved      bool   // it has a record
	last       uint64 // the id of the last Pass; 0: unknown
	prev, next *bucket
}

// Record is a record of the checkpoint. A nil Value deletes the key.
type Record struct {
	Key   string
	Value []byte
}

// NewLimit returns a limit without keys. Its time begins at now. Its keys use share, which bounds
// them together with those of other limits; each limit may have one key nevertheless.
func NewLimit(cfg LimitConfig, share *Share, now time.Time) *Limit {
	l := &Limit{share: share, base: now, keys: map[string]*bucket{}, dirty: map[string]*bucket{}}
	l.Configure(cfg, now)
	return l
}

// Configure changes the configuration and keeps the keys. A key that waits longer than the new
// configuration allows has its wait shortened.
func (l *Limit) Configure(cfg LimitConfig, now time.Time) {
	cfg.Burst = max(cfg.Burst, 1)
	if cfg.MaxKeys <= 0 {
		cfg.MaxKeys = 100_000
	}
	cfg.Every = max(cfg.Every, 1)
	l.cfg = cfg
	latest := l.at(now) + l.span()
	for _, b := range l.keys {
		if b.full > latest {
			b.full, b.last = latest, 0
			l.dirty[b.key] = b
		}
	}
}

// span is the time after which a key that has used its whole Burst equals a new key.
func (l *Limit) span() time.Duration {
	if most := time.Duration(1<<62) / time.Duration(l.cfg.Burst); l.cfg.Every > most {
		return 1 << 62
	}
	return l.cfg.Every * time.Duration(l.cfg.Burst)
}

func (l *Limit) at(now time.Time) time.Duration { return now.Sub(l.base) }

// Allow returns a Pass if one report that stands for n deltas may pass. Otherwise it returns nil
// and counts all n as suppressed.
func (l *Limit) Allow(key string, n int, now time.Time) (pass *Pass) {
	at := l.at(now)
	b := l.touch(key, at)
	full := max(b.full, at) + l.cfg.Every
	if full-at <= l.span() {
		l.passes++
		pass = &Pass{Suppressed: b.suppressed, bucket: b, id: l.passes, before: b.last, every: l.cfg.Every}
		b.suppressed, b.full, b.last = 0, full, l.passes
	} else {
		b.suppressed += n
	}
	b.lastUse = at
	b.list(l).push(b)
	l.dirty[key] = b
	return pass
}

// Suppress counts n deltas of a key as suppressed without a request to pass.
func (l *Limit) Suppress(key string, n int, now time.Time) {
	at := l.at(now)
	b := l.touch(key, at)
	b.suppressed += n
	b.lastUse = at
	b.list(l).push(b)
	l.dirty[key] = b
}

// TakeSuppressed returns the suppressed deltas of a key since its last pass, for a report that
// needs no permission. The Pass permits nothing: if the report is not delivered, its return only
// restores the count. nil: none was suppressed.
func (l *Limit) TakeSuppressed(key string, now time.Time) *Pass {
	b := l.keys[key]
	if b == nil || b.suppressed == 0 {
		return nil
	}
	at := l.at(now)
	b.list(l).remove(b)
	pass := &Pass{Suppressed: b.suppressed, bucket: b}
	b.suppressed, b.lastUse = 0, at
	b.list(l).push(b)
	l.dirty[key] = b
	return pass
}

// Wait returns the time until a delta of a key may pass; 0: it may now.
func (l *Limit) Wait(key string, now time.Time) time.Duration {
	b := l.keys[key]
	if b == nil {
		return 0
	}
	return max(0, b.full-(l.span()-l.cfg.Every)-l.at(now))
}

// touch returns the bucket of a key, removed from its list.
func (l *Limit) touch(key string, at time.Duration) *bucket {
	l.expire(at)
	b := l.keys[key]
	if b == nil {
		b = l.add(key)
	}
	b.list(l).remove(b)
	return b
}

// Return takes back a Pass whose report was not delivered, and counts suppressed deltas that were
// not reported. Another delta may pass in its place, unless a later Pass of the key is still in
// use: that one may depend on the interval after this one, so this Pass is lost.
func (l *Limit) Return(p *Pass, suppressed int, now time.Time) {
	at, b := l.at(now), p.bucket
	if l.keys[b.key] != b { // it was dropped
		if suppressed == 0 {
			return
		}
		if b = l.keys[b.key]; b == nil {
			b = l.add(p.bucket.key)
		}
	}
	b.list(l).remove(b)
	if p.id != 0 && b.last == p.id {
		b.full, b.last = b.full-p.every, p.before
	}
	b.suppressed += suppressed
	b.lastUse = at
	b.list(l).push(b)
	l.dirty[b.key] = b
}

// Len returns the number of keys.
func (l *Limit) Len() int { return len(l.keys) }

// Crowded returns the bound because of which the last key was evicted: that of the share, or
// MaxKeys.
func (l *Limit) Crowded() (bound int64, shared bool) {
	if l.crowded {
		return l.share.Bound(), true
	}
	return int64(l.cfg.MaxKeys), false
}

// TakeForgotten returns the number of keys evicted since the last call.
func (l *Limit) TakeForgotten() int {
	n := l.evicted
	l.evicted = 0
	return n
}

func (l *Limit) add(key string) *bucket {
	if n := len(l.keys); n >= l.cfg.MaxKeys || n > 0 && l.share.Full() {
		oldest := l.withoutSuppressed.head
		if oldest == nil || l.withSuppressed.head != nil && l.withSuppressed.head.lastUse < oldest.lastUse {
			oldest = l.withSuppressed.head
		}
		l.forget(oldest)
		l.evicted++
		l.crowded = n < l.cfg.MaxKeys
	}
	_, forgotten := l.dirty[key]
	b := &bucket{key: key, saved: forgotten}
	l.keys[key] = b
	l.share.add(1)
	b.list(l).push(b)
	return b
}

func (l *Limit) forget(b *bucket) {
	b.list(l).remove(b)
	delete(l.keys, b.key)
	l.share.add(-1)
	if b.saved {
		l.dirty[b.key] = nil
	} else {
		delete(l.dirty, b.key)
	}
}

// expirePerCall is the number of keys that one call may drop: more than it can add.
const expirePerCall = 2

// expire drops some keys whose state equals that of a new key.
func (l *Limit) expire(at time.Duration) {
	for range expirePerCall {
		if b := l.withoutSuppressed.head; b != nil && b.full <= at {
			l.forget(b)
		}
		if b := l.withSuppressed.head; b != nil && at-b.lastUse > max(keepSuppressed, 10*l.span()) {
			l.forget(b)
		}
	}
}

// MakeRoom drops, if the share is full, all keys whose state equals that of a new key: an idle
// limit would otherwise keep them from the other limits of the share.
func (l *Limit) MakeRoom(now time.Time) {
	if !l.share.Full() {
		return
	}
	for n := -1; n != len(l.keys); {
		n = len(l.keys)
		l.expire(l.at(now))
	}
}

// Dirty returns the records that changed since the last call. A key that was added and dropped
// between two calls leaves no record.
func (l *Limit) Dirty(now time.Time) (records []Record) {
	at, wall := l.at(now), now.Round(0)
	if l.clock.jumped(now, at) {
		maps.Copy(l.dirty, l.keys)
	}
	for key, b := range l.dirty {
		r := Record{Key: key}
		if b != nil {
			r.Value = b.value(wall.Add(b.full - at))
			b.saved = true
		}
		records = append(records, r)
	}
	clear(l.dirty)
	return records
}

// value encodes a bucket: full in nanoseconds of Unix time, and the number of suppressed deltas.
func (b *bucket) value(full time.Time) []byte {
	v := binary.AppendVarint(nil, full.UnixNano())
	return binary.AppendUvarint(v, uint64(b.suppressed)) //nolint:gosec // a count
}

var errRecord = errors.New("the record of a limit key is damaged")

// Restore restores a key from its record, unless it is already in use.
func (l *Limit) Restore(r Record, now time.Time) error {
	nanos, n := binary.Varint(r.Value)
	if n <= 0 {
		return errRecord
	}
	suppressed, m := binary.Uvarint(r.Value[n:])
	if m <= 0 || n+m != len(r.Value) || suppressed > 1<<31 {
		return errRecord
	}
	if l.keys[r.Key] != nil {
		return nil
	}
	b := l.add(r.Key)
	at := l.at(now)
	b.list(l).remove(b)
	b.full = at + min(time.Unix(0, nanos).Sub(now.Round(0)), l.span())
	b.lastUse, b.suppressed, b.saved = at, int(suppressed), true
	b.list(l).push(b)
	return nil
}

// Close returns the keys to the share. The limit is not used any more.
func (l *Limit) Close() { l.share.add(-int64(len(l.keys))) }

// Abandon drops all keys; the next Dirty returns their removal.
func (l *Limit) Abandon() {
	for _, b := range l.keys {
		l.forget(b)
	}
}

func (b *bucket) list(l *Limit) *buckets {
	if b.suppressed > 0 {
		return &l.withSuppressed
	}
	return &l.withoutSuppressed
}

// buckets is a list of buckets.
type buckets struct{ head, tail *bucket }

func (l *buckets) push(b *bucket) {
	b.prev, b.next = l.tail, nil
	if b.prev != nil {
		b.prev.next = b
	} else {
		l.head = b
	}
	l.tail = b
}

func (l *buckets) remove(b *bucket) {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		l.head = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	} else {
		l.tail = b.prev
	}
	b.prev, b.next = nil, nil
}
