package rules

import (
	"encoding/binary"
	"errors"
	"maps"
	"time"
)

// LimitConfig is what a [Limit] is made of.
type LimitConfig struct {
	Every time.Duration // one more may pass of each key after this time; more than 0
	// how many may pass of a key at once that has been quiet for long enough; 0: 1
	Burst int
	// MaxKeys bounds the memory; 0: 100,000. Beyond it the key that was asked about the longest
	// time ago is forgotten: the next of it passes, even if it is too early, and how many were
	// suppressed of it is told to nobody.
	MaxKeys int
}

// keepSuppressed is the least time that a key is known of which something was suppressed and
// nothing has come since.
const keepSuppressed = 24 * time.Hour

// Limit lets only so many pass of each key, and counts the others. Of a key, in any time t no more
// than Burst + t/Every pass.
//
// It has no clock and no lock: now is that of the caller, who goes forward with it. Times are told
// apart by the monotonic clock if now has its reading (that of time.Now has), so that a wall clock
// that jumps changes nothing. What [Limit.Dirty] hands over are wall times, which follow such a
// jump: across a restart the wall clock counts, and where that has gone back a key waits Burst
// times Every at most.
//
// A key is forgotten when it is as one that was never seen: when Burst could pass at once, and none
// was suppressed since the last that passed. With some suppressed it is known for a day (and no
// less than for ten times Every) after the last. That happens when Allow is called, a little each
// time.
type Limit struct {
	cfg  LimitConfig
	base time.Time // times are kept as what has gone by since
	keys map[string]*bucket
	// those of which nothing is suppressed, the one asked about the longest time ago first
	quiet buckets
	owing buckets // the others, likewise

	dirty  map[string]*bucket // what changed since it was handed over; nil: forgotten
	forgot int                // for want of room
	passes uint64
	clock  wallClock
}

// Pass is that something of a key may pass.
type Pass struct {
	Suppressed int // how many of the key were suppressed since the last that passed
	// how many more of the key hold and are told when the limit allows it, see [Conditions]
	Waiting int

	bucket     *bucket
	id, before uint64 // of this pass and of the one before it; 0: none
	every      time.Duration
}

// bucket is what is known of a key. full is when Burst may pass at once: each that passes moves it
// on by Every, and may not move it more than Burst times Every beyond now.
type bucket struct {
	key        string
	full       time.Duration
	asked      time.Duration
	suppressed int
	saved      bool   // it was handed over
	last       uint64 // the id of the last Pass; 0: it is not known
	prev, next *bucket
}

// Record is what is known of a key, for the checkpoint. A Value of nil says: nothing any more.
type Record struct {
	Key   string
	Value []byte
}

// NewLimit makes a limit that knows no key. now is the beginning of its time.
func NewLimit(cfg LimitConfig, now time.Time) *Limit {
	l := &Limit{base: now, keys: map[string]*bucket{}, dirty: map[string]*bucket{}}
	l.Configure(cfg, now)
	return l
}

// Configure changes what may pass, and forgets nothing. A key that would wait longer than it can by
// the new configuration waits so long.
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

// span is how long it takes until a key of which as much has passed as may is as one that was never
// seen.
func (l *Limit) span() time.Duration {
	if most := time.Duration(1<<62) / time.Duration(l.cfg.Burst); l.cfg.Every > most {
		return 1 << 62
	}
	return l.cfg.Every * time.Duration(l.cfg.Burst)
}

func (l *Limit) at(now time.Time) time.Duration { return now.Sub(l.base) }

// Allow returns a Pass if n that come as one may pass. nil: they may not, and are counted: all n.
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
	b.asked = at
	b.list(l).push(b)
	l.dirty[key] = b
	return pass
}

// Suppress counts n of a key as suppressed without asking whether they may pass.
func (l *Limit) Suppress(key string, n int, now time.Time) {
	at := l.at(now)
	b := l.touch(key, at)
	b.suppressed += n
	b.asked = at
	b.list(l).push(b)
	l.dirty[key] = b
}

// Wait returns how long it takes until one of a key may pass; 0: it may now.
func (l *Limit) Wait(key string, now time.Time) time.Duration {
	b := l.keys[key]
	if b == nil {
		return 0
	}
	return max(0, b.full-(l.span()-l.cfg.Every)-l.at(now))
}

// touch returns what is known of a key, out of its list.
func (l *Limit) touch(key string, at time.Duration) *bucket {
	l.expire(at)
	b := l.keys[key]
	if b == nil {
		b = l.add(key)
	}
	b.list(l).remove(b)
	return b
}

// Return takes back a Pass of which nothing came, and with it that so many were suppressed, which
// nobody was told. Another may pass in its place, unless there was one since that has not been
// taken back: then it is lost, because that one may have come too early without it.
func (l *Limit) Return(p *Pass, suppressed int, now time.Time) {
	at, b := l.at(now), p.bucket
	if l.keys[b.key] != b { // it was forgotten
		if suppressed == 0 {
			return
		}
		if b = l.keys[b.key]; b == nil {
			b = l.add(p.bucket.key)
		}
	}
	b.list(l).remove(b)
	if b.last == p.id {
		b.full, b.last = b.full-p.every, p.before
	}
	b.suppressed += suppressed
	b.asked = at
	b.list(l).push(b)
	l.dirty[b.key] = b
}

// Len returns how many keys are known.
func (l *Limit) Len() int { return len(l.keys) }

// TakeForgotten returns how many keys were forgotten for want of room since the last call.
func (l *Limit) TakeForgotten() int {
	n := l.forgot
	l.forgot = 0
	return n
}

func (l *Limit) add(key string) *bucket {
	if len(l.keys) >= l.cfg.MaxKeys {
		oldest := l.quiet.head
		if oldest == nil || l.owing.head != nil && l.owing.head.asked < oldest.asked {
			oldest = l.owing.head
		}
		l.forget(oldest)
		l.forgot++
	}
	_, forgotten := l.dirty[key]
	b := &bucket{key: key, saved: forgotten}
	l.keys[key] = b
	b.list(l).push(b)
	return b
}

func (l *Limit) forget(b *bucket) {
	b.list(l).remove(b)
	delete(l.keys, b.key)
	if b.saved {
		l.dirty[b.key] = nil
	} else {
		delete(l.dirty, b.key)
	}
}

// expirePerCall is how many keys one call may forget: more than it can add.
const expirePerCall = 2

// expire forgets some keys that are as if they had never been seen.
func (l *Limit) expire(at time.Duration) {
	for range expirePerCall {
		if b := l.quiet.head; b != nil && b.full <= at {
			l.forget(b)
		}
		if b := l.owing.head; b != nil && at-b.asked > max(keepSuppressed, 10*l.span()) {
			l.forget(b)
		}
	}
}

// Dirty hands over what changed since the last call, as of now. What comes and goes in between
// appears nowhere.
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

// value is what is kept: when the key is full again, as nanoseconds of Unix time, and how many are
// suppressed.
func (b *bucket) value(full time.Time) []byte {
	v := binary.AppendVarint(nil, full.UnixNano())
	return binary.AppendUvarint(v, uint64(b.suppressed)) //nolint:gosec // a count
}

var errRecord = errors.New("what is known of a limit's key is cut short")

// Restore takes up what was known of a key before a restart. One that is known already stays as it
// is.
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
	b.asked, b.suppressed, b.saved = at, int(suppressed), true
	b.list(l).push(b)
	return nil
}

// Abandon forgets all keys; the next Dirty says so.
func (l *Limit) Abandon() {
	for _, b := range l.keys {
		l.forget(b)
	}
}

func (b *bucket) list(l *Limit) *buckets {
	if b.suppressed > 0 {
		return &l.owing
	}
	return &l.quiet
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
